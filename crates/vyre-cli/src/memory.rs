//! How much memory there is, so that a run that needs more is refused instead of killed.

/// Bytes that may still be taken: the least of what the system has, what its control group allows, and what the process may have.
/// None where nobody says.
pub(crate) fn available() -> Option<u64> {
    [system(), control_group(), address_space()].into_iter().flatten().min()
}

/// Says what is wrong when there is no room for so many bytes.
pub(crate) fn room_for(bytes: u64) -> Result<(), String> {
    match available() {
        Some(room) if bytes > room => Err(format!("it takes {} of memory, and {} are free", size(bytes), size(room))),
        _ => Ok(()),
    }
}

/// A number of bytes for people.
pub(crate) fn size(bytes: u64) -> String {
    match bytes {
        0..1_000 => format!("{bytes} bytes"),
        1_000..1_000_000 => format!("{:.1} kB", bytes as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", bytes as f64 / 1e6),
        _ => format!("{:.1} GB", bytes as f64 / 1e9),
    }
}

/// A line such as `MemAvailable:   20971520 kB`.
fn kilobytes(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    rest.trim_start_matches(':').trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

fn system() -> Option<u64> {
    kilobytes(&std::fs::read_to_string("/proc/meminfo").ok()?, "MemAvailable")
}

fn control_group() -> Option<u64> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    let number = |name: &str| {
        let text = std::fs::read_to_string(format!("/sys/fs/cgroup{own}/{name}")).ok()?;
        text.trim().parse::<u64>().ok()
    };
    // What was read from files is given back when memory is short.
    let cached = std::fs::read_to_string(format!("/sys/fs/cgroup{own}/memory.stat"))
        .ok()
        .and_then(|text| text.lines().find_map(|line| line.strip_prefix("inactive_file "))?.trim().parse::<u64>().ok());
    let taken = number("memory.current")?.saturating_sub(cached.unwrap_or(0));
    Some(number("memory.max")?.saturating_sub(taken))
}

#[cfg(unix)]
fn address_space() -> Option<u64> {
    let limit = rustix::process::getrlimit(rustix::process::Resource::As).current?;
    let taken = std::fs::read_to_string("/proc/self/status").ok().and_then(|text| kilobytes(&text, "VmSize"));
    Some(limit.saturating_sub(taken.unwrap_or(0)))
}

#[cfg(not(unix))]
fn address_space() -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_written() {
        let text = "MemTotal:       24000000 kB\nMemAvailable:   2000 kB\n";
        assert_eq!(kilobytes(text, "MemAvailable"), Some(2_048_000));
        assert_eq!(kilobytes(text, "SwapFree"), None);
        assert_eq!((size(12), size(2_500_000_000)), ("12 bytes".to_owned(), "2.5 GB".to_owned()));
        assert!(room_for(1).is_ok());
        if available().is_some() {
            assert!(room_for(u64::MAX).is_err());
        }
    }
}
