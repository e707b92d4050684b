use crate::random::{Random, cases};
use vyre_foundation::ir::{BufferDecl, DataType, Expr, Math, Node, Program};
use vyre_foundation::wire;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn small() -> Program {
    Program::wrapped(
        vec![
            BufferDecl::read("a", 0, DataType::F32),
            BufferDecl::output("out", 1, DataType::vector(DataType::F16, 4)).with_count(64),
        ],
        [64, 1, 1],
        vec![Node::store("out", Expr::global_id(0), Expr::load("a", Expr::global_id(0)) * 2.0f32)],
    )
}

#[test]
fn the_fingerprint_is_the_same_everywhere() {
    assert_eq!(hex(&small().fingerprint()), "c20ac29aaca0c6f1983c1cb0c4fa21986c0c83693238ace166aa55e601aae6ad");
    assert_eq!(
        hex(&Program::empty().fingerprint()),
        "5cbc2834d3009a6afc880b98e2523e5cbaf760cce47f4d086eeb5044fc98c178"
    );
    assert_eq!(small().fingerprint(), small().fingerprint());
    assert_ne!(small().fingerprint(), small().with_name("other").fingerprint());
    assert_eq!(small().with_name("main"), small());
    assert_ne!(small().fingerprint(), small().with_math(Math::Fast).fingerprint());
    assert_eq!(wire::decode(&wire::encode(&small().with_math(Math::Fast))), Ok(small().with_math(Math::Fast)));
    assert_eq!(small().fingerprint(), *blake3::hash(&wire::encode(&small())).as_bytes());
}

#[test]
fn random_programs_come_back() {
    for seed in 0..cases(3000) {
        let program = Random(seed).program();
        let bytes = wire::encode(&program);
        let back = wire::decode(&bytes).unwrap_or_else(|problem| panic!("seed {seed}: {problem}"));
        assert!(back == program, "seed {seed}");
        assert_eq!(wire::encode(&back), bytes, "seed {seed}");
    }
}

#[test]
fn whatever_decodes_is_canonical() {
    let mut accepted = 0;
    for seed in 0..cases(20_000) {
        let mut random = Random(seed ^ 0xDEAD);
        let mut bytes = wire::encode(&Random(seed % 50).program());
        for _ in 0..=random.below(3) {
            let at = random.below(bytes.len());
            match random.below(4) {
                0 => bytes[at] ^= 1 << random.below(8),
                1 => bytes[at] = random.word() as u8,
                2 => bytes.truncate(at.max(1)),
                _ => bytes.insert(at, random.word() as u8),
            }
        }
        // Half of them keep a true length in the header, so that the damage further in is reached.
        if bytes.len() >= 12 && random.flip() {
            let length = (bytes.len() - 12) as u32;
            bytes[8..12].copy_from_slice(&length.to_le_bytes());
        }
        if let Ok(program) = wire::decode(&bytes) {
            assert_eq!(wire::encode(&program), bytes, "seed {seed}");
            accepted += 1;
        }
    }
    assert!(accepted > 0, "no mutation was accepted, so nothing was tested");
}

#[test]
fn every_cut_is_refused() {
    let bytes = wire::encode(&small());
    for end in 0..bytes.len() {
        let problem = wire::decode(&bytes[..end]).expect_err("cut bytes");
        assert!(problem.code.id.starts_with("V03"), "{problem}");
    }
    let mut more = bytes.clone();
    more.push(0);
    assert!(wire::decode(&more).is_err());
}

fn wrap(payload: &[u8]) -> Vec<u8> {
    let mut bytes = b"VYRE\x01\0\0\0".to_vec();
    bytes.extend((payload.len() as u32).to_le_bytes());
    bytes.extend(payload);
    bytes
}

#[test]
fn claimed_counts_take_no_memory() {
    // No name, then four thousand million types.
    let problem = wire::decode(&wrap(&[0, 0xFF, 0xFF, 0xFF, 0xFF])).expect_err("claimed count");
    assert_eq!(problem.code.id, "V0303");
    assert_eq!(wire::decode(&[0; 40]).expect_err("zeros").code.id, "V0301");
    assert_eq!(wire::decode(b"VYRE\x02\0\0\0\0\0\0\0").expect_err("version").code.id, "V0302");
    assert_eq!(wire::decode(&vec![0; wire::MAX_BYTES + 1]).expect_err("size").code.id, "V0304");
}

#[test]
fn depth_is_bounded() {
    let deep = |levels: usize| {
        let mut expr = Expr::u32(1);
        for _ in 0..levels {
            expr = -expr;
        }
        Program::wrapped(vec![], [1, 1, 1], vec![Node::let_bind("x", expr)])
    };
    let fine = deep(200);
    assert!(wire::decode(&wire::encode(&fine)).expect("200 levels") == fine);
    let problem = wire::decode(&wire::encode(&deep(100_000))).expect_err("100,000 levels");
    assert_eq!(problem.code.id, "V0304");
    let mut node = Node::Break;
    for _ in 0..100_000 {
        node = Node::Block(vec![node]);
    }
    let program = Program::wrapped(vec![], [1, 1, 1], vec![node]);
    assert_eq!(wire::decode(&wire::encode(&program)).expect_err("100,000 blocks").code.id, "V0304");
}
