//! The processor that Cranelift makes code for.

use std::sync::OnceLock;

use cranelift_codegen::isa::{self, OwnedTargetIsa, TargetIsa};
use cranelift_codegen::settings::{self, Configurable};

/// A processor and what it can do.
pub(in super::super) struct Target {
    isa: OwnedTargetIsa,
    /// It multiplies and adds with one rounding.
    fma: bool,
}

impl Target {
    /// This machine; `None` when no code can be made for it.
    pub(in super::super) fn host() -> Option<&'static Target> {
        static HOST: OnceLock<Option<Target>> = OnceLock::new();
        HOST.get_or_init(|| {
            if cfg!(not(unix)) {
                return None;
            }
            #[cfg(target_arch = "x86_64")]
            if !is_x86_feature_detected!("sse4.1") {
                return None;
            }
            let builder = cranelift_native::builder().ok()?;
            // No capability bit names this part of riscv64gc, which this very program is compiled for.
            #[cfg(target_arch = "riscv64")]
            let builder = {
                let mut builder = builder;
                builder.enable("has_zifencei").ok()?;
                builder
            };
            Target::new(builder)
        })
        .as_ref()
    }

    /// The processor of a builder; `None` when it has no vectors.
    pub(super) fn new(builder: isa::Builder) -> Option<Target> {
        let mut flags = settings::builder();
        for (name, value) in [
            ("opt_level", "speed"),
            ("enable_verifier", if cfg!(debug_assertions) { "true" } else { "false" }),
            ("enable_probestack", "true"),
            ("probestack_strategy", "inline"),
            ("unwind_info", "false"),
            ("is_pic", "true"),
        ] {
            flags.set(name, value).ok()?;
        }
        let isa = builder.finish(settings::Flags::new(flags)).ok()?;
        let has = |name: &str| isa.isa_flags().iter().any(|flag| flag.name == name && flag.as_bool() == Some(true));
        let x86 = matches!(isa.triple().architecture, target_lexicon::Architecture::X86_64);
        let riscv = matches!(isa.triple().architecture, target_lexicon::Architecture::Riscv64(_));
        if riscv && !has("has_v") {
            return None;
        }
        let fma = !x86 || has("has_fma");
        Some(Target { isa, fma })
    }

    pub(super) fn isa(&self) -> &dyn TargetIsa {
        &*self.isa
    }

    pub(super) fn is_x86(&self) -> bool {
        matches!(self.isa.triple().architecture, target_lexicon::Architecture::X86_64)
    }

    pub(super) fn is_riscv(&self) -> bool {
        matches!(self.isa.triple().architecture, target_lexicon::Architecture::Riscv64(_))
    }

    pub(super) fn has_fma(&self) -> bool {
        self.fma
    }

    /// What code for it depends on, in words.
    pub(in super::super) fn description(&self) -> String {
        let mut text = self.isa.triple().to_string();
        for flag in self.isa.isa_flags() {
            text.push_str(&format!(";{flag}"));
        }
        text
    }
}
