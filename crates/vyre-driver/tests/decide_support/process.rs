//! A test that plays several processes: it starts itself again, in a role.

use std::process::{Child, Command, Stdio};

/// The role this process was started for, when it is a child of a test.
pub(crate) fn role() -> Option<Vec<String>> {
    std::env::var("VYRE_TEST_ROLE").ok().map(|role| role.split('\u{1}').map(str::to_owned).collect())
}

/// Starts the named test of this program again, in a role.
pub(crate) fn child(test: &str, role: &[&str]) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]);
    command.env("VYRE_TEST_ROLE", role.join("\u{1}")).stdin(Stdio::null()).stdout(Stdio::null());
    command
}

/// Waits for children, all of which must succeed.
pub(crate) fn all_succeed(children: Vec<Child>) {
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}
