//! The vector instructions that are used, by what they do.

use super::asm::VOp;

const fn op(pp: u8, map: u8, op: u8, w: u8) -> VOp {
    VOp { pp, map, op, w, full: true, evex: false, ext: None }
}

const fn part(pp: u8, map: u8, code: u8, w: u8) -> VOp {
    VOp { full: false, ..op(pp, map, code, w) }
}

const fn evex(pp: u8, map: u8, code: u8, w: u8) -> VOp {
    VOp { evex: true, ..op(pp, map, code, w) }
}

const fn evex_part(pp: u8, map: u8, code: u8, w: u8) -> VOp {
    VOp { evex: true, ..part(pp, map, code, w) }
}

const fn shift(code: u8, w: u8, ext: u8) -> VOp {
    VOp { ext: Some(ext), ..op(1, 1, code, w) }
}

macro_rules! ops {
    ($($name:ident = $op:expr;)*) => {
        $(pub(super) const $name: VOp = $op;)*
        /// Every one with its name, for the encoder's test.
        #[cfg(test)]
        pub(super) const ALL: &[(&str, VOp)] = &[$((stringify!($name), $name)),*];
    };
}

ops! {
    VADDPS = op(0, 1, 0x58, 0);
    VMULPS = op(0, 1, 0x59, 0);
    VSUBPS = op(0, 1, 0x5c, 0);
    VMINPS = op(0, 1, 0x5d, 0);
    VDIVPS = op(0, 1, 0x5e, 0);
    VMAXPS = op(0, 1, 0x5f, 0);
    VSQRTPS = op(0, 1, 0x51, 0);
    VRSQRT14PS = evex(1, 2, 0x4e, 0);
    VRCP14PS = evex(1, 2, 0x4c, 0);
    VADDPD = op(1, 1, 0x58, 1);
    VMULPD = op(1, 1, 0x59, 1);
    VSUBPD = op(1, 1, 0x5c, 1);
    VMINPD = op(1, 1, 0x5d, 1);
    VDIVPD = op(1, 1, 0x5e, 1);
    VMAXPD = op(1, 1, 0x5f, 1);
    VSQRTPD = op(1, 1, 0x51, 1);
    VFMADD213PS = op(1, 2, 0xa8, 0);
    VFMADD231PS = op(1, 2, 0xb8, 0);
    VFMADD213PD = op(1, 2, 0xa8, 1);
    VFMADD231PD = op(1, 2, 0xb8, 1);
    VFMSUB213PS = op(1, 2, 0xaa, 0);
    VFMSUB231PS = op(1, 2, 0xba, 0);
    VFMSUB213PD = op(1, 2, 0xaa, 1);
    VFMSUB231PD = op(1, 2, 0xba, 1);
    VFNMADD213PS = op(1, 2, 0xac, 0);
    VFNMADD231PS = op(1, 2, 0xbc, 0);
    VFNMADD213PD = op(1, 2, 0xac, 1);
    VFNMADD231PD = op(1, 2, 0xbc, 1);
    VROUNDPS = op(1, 3, 0x08, 0);
    VROUNDPD = op(1, 3, 0x09, 1);
    VCMPPS = op(0, 1, 0xc2, 0);
    VCMPPD = op(1, 1, 0xc2, 1);
    VPADDD = op(1, 1, 0xfe, 0);
    VPSUBD = op(1, 1, 0xfa, 0);
    VPMULLD = op(1, 2, 0x40, 0);
    VPMINSD = op(1, 2, 0x39, 0);
    VPMINUD = op(1, 2, 0x3b, 0);
    VPMAXSD = op(1, 2, 0x3d, 0);
    VPMAXUD = op(1, 2, 0x3f, 0);
    VPABSD = op(1, 2, 0x1e, 0);
    VPANDD = op(1, 1, 0xdb, 0);
    VPANDND = op(1, 1, 0xdf, 0);
    VPORD = op(1, 1, 0xeb, 0);
    VPXORD = op(1, 1, 0xef, 0);
    VPSLLVD = op(1, 2, 0x47, 0);
    VPSRLVD = op(1, 2, 0x45, 0);
    VPSRAVD = op(1, 2, 0x46, 0);
    VPSLLD = shift(0x72, 0, 6);
    VPSRLD = shift(0x72, 0, 2);
    VPROLD = VOp { evex: true, ..shift(0x72, 0, 1) };
    VPSRAD = shift(0x72, 0, 4);
    VPSLLW = shift(0x71, 0, 6);
    VPSRLW = shift(0x71, 0, 2);
    VPSRAW = shift(0x71, 0, 4);
    VPMADDWD = op(1, 1, 0xf5, 0);
    VPCMPEQD = op(1, 1, 0x76, 0);
    VPCMPGTD = op(1, 1, 0x66, 0);
    VRANGEPS = evex(1, 3, 0x50, 0);
    VPCMPD = evex(1, 3, 0x1f, 0);
    VPCMPUD = evex(1, 3, 0x1e, 0);
    VPMULUDQ = op(1, 1, 0xf4, 1);
    VPMULDQ = op(1, 2, 0x28, 1);
    VPADDQ = op(1, 1, 0xd4, 1);
    VPSUBQ = op(1, 1, 0xfb, 1);
    VPMULLQ = evex(1, 2, 0x40, 1);
    VPMINSQ = evex(1, 2, 0x39, 1);
    VPMINUQ = evex(1, 2, 0x3b, 1);
    VPMAXSQ = evex(1, 2, 0x3d, 1);
    VPMAXUQ = evex(1, 2, 0x3f, 1);
    VPABSQ = evex(1, 2, 0x1f, 1);
    VPSLLVQ = op(1, 2, 0x47, 1);
    VPSRLVQ = op(1, 2, 0x45, 1);
    VPSRAVQ = evex(1, 2, 0x46, 1);
    VPSRLQ = shift(0x73, 1, 2);
    VPSLLQ = shift(0x73, 1, 6);
    VPCMPEQQ = op(1, 2, 0x29, 1);
    VPCMPGTQ = op(1, 2, 0x37, 1);
    VPCMPQ = evex(1, 3, 0x1f, 1);
    VPCMPUQ = evex(1, 3, 0x1e, 1);
    VPLZCNTD = evex(1, 2, 0x44, 0);
    VCVTDQ2PS = op(0, 1, 0x5b, 0);
    VCVTUDQ2PS = evex(3, 1, 0x7a, 0);
    VCVTTPS2DQ = op(2, 1, 0x5b, 0);
    VCVTTPS2UDQ = evex(0, 1, 0x78, 0);
    VCVTDQ2PD = part(2, 1, 0xe6, 0);
    VCVTUDQ2PD = evex_part(2, 1, 0x7a, 0);
    VCVTTPD2DQ = op(1, 1, 0xe6, 1);
    VCVTTPD2UDQ = evex(0, 1, 0x78, 1);
    VCVTPS2PD = part(0, 1, 0x5a, 0);
    VCVTPD2PS = op(1, 1, 0x5a, 1);
    VCVTQQ2PD = evex(2, 1, 0xe6, 1);
    VCVTUQQ2PD = evex(2, 1, 0x7a, 1);
    VCVTPH2PS = part(1, 2, 0x13, 0);
    VCVTPS2PH = part(1, 3, 0x1d, 0);
    VMOVUPS = op(0, 1, 0x10, 0);
    VMOVUPS_STORE = op(0, 1, 0x11, 0);
    VMOVAPS = op(0, 1, 0x28, 0);
    VMOVAPD = op(1, 1, 0x28, 1);
    VMOVUPD = op(1, 1, 0x10, 1);
    VMOVUPD_STORE = op(1, 1, 0x11, 1);
    VMOVNTPS_STORE = op(0, 1, 0x2b, 0);
    VMOVSS = part(2, 1, 0x10, 0);
    VMOVSS_STORE = part(2, 1, 0x11, 0);
    VMOVSD = part(3, 1, 0x10, 1);
    VMOVSD_STORE = part(3, 1, 0x11, 1);
    VMASKMOVPS = op(1, 2, 0x2c, 0);
    VMASKMOVPS_STORE = op(1, 2, 0x2e, 0);
    VMASKMOVPD = op(1, 2, 0x2d, 0);
    VMASKMOVPD_STORE = op(1, 2, 0x2f, 0);
    VPBROADCASTD_G = evex_part(1, 2, 0x7c, 0);
    VPBROADCASTQ_G = evex_part(1, 2, 0x7c, 1);
    VPBROADCASTD = part(1, 2, 0x58, 0);
    VPBROADCASTQ = part(1, 2, 0x59, 1);
    VBROADCASTSS = part(1, 2, 0x18, 0);
    VMOVD_TO = part(1, 1, 0x6e, 0);
    VMOVQ_TO = part(1, 1, 0x6e, 1);
    VMOVD_FROM = part(1, 1, 0x7e, 0);
    VMOVQ_FROM = part(1, 1, 0x7e, 1);
    VPMOVZXBD = part(1, 2, 0x31, 0);
    VPMOVSXBD = part(1, 2, 0x21, 0);
    VPMOVZXWD = part(1, 2, 0x33, 0);
    VPMOVSXWD = part(1, 2, 0x23, 0);
    VPMOVZXDQ = part(1, 2, 0x35, 0);
    VPMOVSXDQ = part(1, 2, 0x25, 0);
    VPMOVDB = evex_part(2, 2, 0x31, 0);
    VPMOVDW = evex_part(2, 2, 0x33, 0);
    VPMOVQD = evex_part(2, 2, 0x35, 0);
    VPGATHERDD = part(1, 2, 0x90, 0);
    VPGATHERDQ = part(1, 2, 0x90, 1);
    VPSCATTERDD = evex_part(1, 2, 0xa0, 0);
    VPSCATTERDQ = evex_part(1, 2, 0xa0, 1);
    VPBLENDMD = evex(1, 2, 0x64, 0);
    VPBLENDMQ = evex(1, 2, 0x64, 1);
    VPBLENDD = op(1, 3, 0x02, 0);
    VBLENDVPS = op(1, 3, 0x4a, 0);
    VEXTRACTI64X4 = evex_part(1, 3, 0x3b, 1);
    VINSERTI64X4 = evex_part(1, 3, 0x3a, 1);
    VEXTRACTF32X4 = evex_part(1, 3, 0x19, 0);
    VINSERTF32X4 = evex_part(1, 3, 0x18, 0);
    VEXTRACTI128 = part(1, 3, 0x39, 0);
    VINSERTI128 = part(1, 3, 0x38, 0);
    VMOVMSKPS = part(0, 1, 0x50, 0);
    VALIGND = evex(1, 3, 0x03, 0);
    VPERMT2D = evex(1, 2, 0x7e, 0);
    VPERMD = op(1, 2, 0x36, 0);
    VSHUFPS = op(0, 1, 0xc6, 0);
    VUNPCKLPS = op(0, 1, 0x14, 0);
    VUNPCKHPS = op(0, 1, 0x15, 0);
    VPERM2F128 = op(1, 3, 0x06, 0);
    VSHUFF32X4 = evex(1, 3, 0x23, 0);
    VPALIGNR = op(1, 3, 0x0f, 0);
    VPERMQ = op(1, 3, 0x00, 1);
    VPSHUFB = op(1, 2, 0x00, 0);
    VPEXTRD = part(1, 3, 0x16, 0);
    VPEXTRQ = part(1, 3, 0x16, 1);
    VMOVHPS_STORE = part(0, 1, 0x17, 0);
    KANDW = part(0, 1, 0x41, 0);
    KANDNW = part(0, 1, 0x42, 0);
    KNOTW = part(0, 1, 0x44, 0);
    KORW = part(0, 1, 0x45, 0);
    KXORW = part(0, 1, 0x47, 0);
    KMOVW = part(0, 1, 0x90, 0);
    KMOVW_STORE = part(0, 1, 0x91, 0);
    KMOVW_TO = part(0, 1, 0x92, 0);
    KMOVW_FROM = part(0, 1, 0x93, 0);
    KORTESTW = part(0, 1, 0x98, 0);
    KUNPCKBW = part(1, 1, 0x4b, 0);
    KSHIFTRW = part(1, 3, 0x30, 1);
    PDEP = part(3, 2, 0xf5, 1);
    BLS = part(0, 2, 0xf3, 0);
    SHLX = part(1, 2, 0xf7, 0);
    SARX = part(2, 2, 0xf7, 0);
    SHRX = part(3, 2, 0xf7, 0);
}

impl VOp {
    /// The sources can be taken the other way round.
    pub(super) fn commutes(self) -> bool {
        matches!(self, VADDPS | VMULPS | VPADDD | VFMADD231PS | VFNMADD231PS)
    }
}
