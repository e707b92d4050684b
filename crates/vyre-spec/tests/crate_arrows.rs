//! Crates depend on each other in one direction only. This holds the list in `ARCHITECTURE.md` against `cargo metadata`.

use std::collections::BTreeMap;
use std::process::Command;

/// What each crate may depend on, outside its tests.
const ALLOWED: &[(&str, &[&str])] = &[
    ("vyre-spec", &[]),
    ("vyre-sources", &[]),
    ("vyre-foundation", &["vyre-spec", "vyre-sources"]),
    ("vyre-reference", &["vyre-spec", "vyre-foundation"]),
    ("vyre-wgsl", &["vyre-spec", "vyre-foundation"]),
    ("vyre-macros", &["vyre-spec", "vyre-foundation", "vyre-wgsl"]),
    ("vyre-driver", &["vyre-spec", "vyre-foundation"]),
    ("vyre-ops", &["vyre"]),
    ("vyre-cpu", &["vyre-spec", "vyre-sources", "vyre-foundation", "vyre-driver"]),
    ("vyre-wgpu", &["vyre-spec", "vyre-sources", "vyre-foundation", "vyre-driver"]),
    ("vyre-cuda", &["vyre-spec", "vyre-sources", "vyre-foundation", "vyre-driver"]),
    (
        "vyre",
        &[
            "vyre-spec",
            "vyre-foundation",
            "vyre-reference",
            "vyre-wgsl",
            "vyre-macros",
            "vyre-driver",
            "vyre-cpu",
            "vyre-wgpu",
            "vyre-cuda",
        ],
    ),
    ("vyre-cli", &["vyre", "vyre-ops"]),
    ("vyre-python", &["vyre", "vyre-ops"]),
    ("vyre-kernel-board", &["vyre"]),
    ("vyre-op-board", &["vyre", "vyre-ops"]),
    ("vyre-conform", &["vyre-spec", "vyre-foundation", "vyre-reference", "vyre-wgsl", "vyre-driver"]),
];

#[test]
fn arrows_point_one_way() {
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.toml");
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--format-version", "1", "--manifest-path", manifest])
        .output()
        .expect("cargo metadata runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).expect("cargo metadata is JSON");
    let allowed: BTreeMap<_, _> = ALLOWED.iter().copied().collect();
    let mut wrong = Vec::new();
    let mut seen = 0;
    for package in metadata["packages"].as_array().expect("packages") {
        let name = package["name"].as_str().expect("a package has a name");
        let Some(may) = allowed.get(name) else {
            wrong.push(format!("{name} is not in the list of crates"));
            continue;
        };
        seen += 1;
        for dependency in package["dependencies"].as_array().expect("dependencies") {
            let on = dependency["name"].as_str().expect("a dependency has a name");
            let for_tests = dependency["kind"].as_str() == Some("dev");
            if (on == "vyre" || on.starts_with("vyre-")) && !for_tests && !may.contains(&on) {
                wrong.push(format!("{name} may not depend on {on}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(seen >= 2, "cargo metadata lists the workspace");
}
