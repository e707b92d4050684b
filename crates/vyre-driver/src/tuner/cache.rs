use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use vyre_spec::{Diagnostic, codes};

use super::TunerProgramKey;
use super::stored::Stored;
use crate::table_file::{MAX_TABLE_BYTES, TableFile, quoted, user_folder};

/// The section of the file with what decisions rest on; [`TunerCache`] keeps it as it is.
pub(super) const EVIDENCE: &str = "evidence";

pub(super) static FILE: TableFile = TableFile {
    what: "tuner cache",
    unreadable: &codes::tuner::FILE_UNREADABLE,
    too_large: &codes::tuner::FILE_TOO_LARGE,
    invalid: &codes::tuner::FILE_INVALID,
    entry: &codes::tuner::FILE_ENTRY,
    unwritable: &codes::tuner::FILE_UNWRITABLE,
};

/// Workgroup sizes by program key, for one adapter. On disk it is TOML with one line per entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TunerCache {
    /// Key to workgroup size.
    pub entries: BTreeMap<String, [u32; 3]>,
}

impl TunerCache {
    /// The size stored under a key.
    pub fn get(&self, key: &str) -> Option<[u32; 3]> {
        self.entries.get(key).copied()
    }

    /// The size stored under a program's key.
    pub fn get_key(&self, key: &TunerProgramKey) -> Option<[u32; 3]> {
        self.get(key.as_str())
    }

    /// Stores a size under a key.
    pub fn set(&mut self, key: impl Into<String>, size: [u32; 3]) {
        self.entries.insert(key.into(), size);
    }

    /// Stores a size under a program's key.
    pub fn set_key(&mut self, key: impl Borrow<TunerProgramKey>, size: [u32; 3]) {
        self.set(key.borrow().as_str(), size);
    }

    /// Reads a file. A missing one is an empty cache; one that can't be read, is over 4 MiB, is not TOML or has an entry
    /// that is not three positive `u32` is an error that names the file and the entry.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, String> {
        load(path.as_ref()).map_err(|diagnostic| diagnostic.to_string())
    }

    /// Adds the entries to the file, atomically: what other processes stored under other keys stays. Entries
    /// with a zero, and a file that [`TunerCache::load`] would refuse, are errors and leave the file as it is.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), String> {
        save(self, path.as_ref()).map_err(|diagnostic| diagnostic.to_string())
    }
}

pub(super) fn load(path: &Path) -> Result<TunerCache, Diagnostic> {
    match FILE.read(path)? {
        Some(text) => decode(path, &text).map(|(cache, _)| cache),
        None => Ok(TunerCache::default()),
    }
}

pub(super) fn save(cache: &TunerCache, path: &Path) -> Result<(), Diagnostic> {
    check(cache, path)?;
    FILE.update(path, |path, present| {
        let (mut merged, section) = match &present {
            Some(text) => decode(path, text)?,
            None => Default::default(),
        };
        merged.entries.extend(cache.entries.iter().map(|(key, size)| (key.clone(), *size)));
        let text = encode(&merged, &section);
        if text.len() as u64 <= MAX_TABLE_BYTES || section.is_empty() {
            return Ok(text);
        }
        let mut stored = Stored::decode(path, &text)?;
        let keep = cache.entries.keys().cloned().collect();
        stored.encode(path, &keep)
    })
}

/// Refuses entries that [`load`] would refuse.
pub(super) fn check(cache: &TunerCache, path: &Path) -> Result<(), Diagnostic> {
    let mut bad = Vec::new();
    for (key, size) in &cache.entries {
        if size.contains(&0) {
            bad.push((key.clone(), format!("holds {size:?}, not three positive integers")));
        } else if key == EVIDENCE {
            bad.push((key.clone(), "has the name of the section with the evidence".to_owned()));
        }
    }
    FILE.bad_entries(path, &bad).map_or(Ok(()), Err)
}

/// The triples, and after them the section with the evidence, which begins with its header.
pub(super) fn encode(cache: &TunerCache, section: &str) -> String {
    let mut text = String::with_capacity(cache.entries.len() * 96 + section.len() + 1);
    for (key, [x, y, z]) in &cache.entries {
        // Writing to a string can't fail.
        let _ = writeln!(text, "{} = [{x}, {y}, {z}]", quoted(key));
    }
    if !section.is_empty() {
        text.push('\n');
        text.push_str(section);
    }
    text
}

/// What stands before the section, and the section from its header on.
fn split(text: &str) -> (&str, &str) {
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        if line
            .strip_prefix('[')
            .and_then(|rest| rest.strip_prefix(EVIDENCE))
            .is_some_and(|rest| rest.starts_with([']', '.']))
        {
            return (text[..at].trim_end_matches('\n'), &text[at..]);
        }
        at += line.len();
    }
    (text, "")
}

/// Reads what [`encode`] wrote, where no key needed an escape: every save reads the whole file, and this is many times faster
/// than the general way. `None` for everything else, right or wrong.
fn decode_plain(text: &str) -> Option<TunerCache> {
    let mut entries: Vec<(&str, [u32; 3])> = Vec::new();
    for line in text.split_terminator('\n') {
        let (key, rest) = line.strip_prefix('"')?.split_once("\" = [")?;
        let plain = |byte: u8| byte >= b' ' && byte != b'"' && byte != b'\\' && byte != 0x7f;
        // Keys in order are different keys.
        if !key.bytes().all(plain) || entries.last().is_some_and(|(last, _)| *last >= key) {
            return None;
        }
        let mut numbers = rest.strip_suffix(']')?.split(", ");
        let mut size = [0; 3];
        for axis in &mut size {
            let number = numbers.next().filter(|number| number.starts_with(|c: char| ('1'..='9').contains(&c)))?;
            *axis = number.parse().ok()?;
        }
        if numbers.next().is_some() {
            return None;
        }
        entries.push((key, size));
    }
    Some(TunerCache { entries: entries.into_iter().map(|(key, size)| (key.to_owned(), size)).collect() })
}

/// The triples, and the section with the evidence as it is.
pub(super) fn decode(path: &Path, text: &str) -> Result<(TunerCache, String), Diagnostic> {
    let (head, section) = split(text);
    if let Some(cache) = decode_plain(head) {
        if !section.is_empty() {
            let table = FILE.parse(path, section)?;
            FILE.check_schema(path, table.get(EVIDENCE).and_then(|section| section.get("schema")))?;
        }
        return Ok((cache, section.to_owned()));
    }
    let mut entries = BTreeMap::new();
    let mut bad = Vec::new();
    let mut section = section.to_owned();
    for (key, value) in FILE.parse(path, text)? {
        match size(&value) {
            Some(size) => {
                entries.insert(key, size);
            }
            None if key == EVIDENCE && value.is_table() => {
                FILE.check_schema(path, value.get("schema"))?;
                if section.is_empty() {
                    // Written by hand in a form of its own.
                    let table = toml::Table::from_iter([(key, value)]);
                    section = toml::to_string(&table).map_err(|error| {
                        FILE.problem(FILE.invalid, path, &format!("can't be written again: {error}"))
                    })?;
                }
            }
            None => bad.push((key, "is not three positive 32-bit integers".to_owned())),
        }
    }
    match FILE.bad_entries(path, &bad) {
        Some(diagnostic) => Err(diagnostic),
        None => Ok((TunerCache { entries }, section)),
    }
}

fn size(value: &toml::Value) -> Option<[u32; 3]> {
    let items: &[toml::Value; 3] = value.as_array()?.as_slice().try_into().ok()?;
    let mut size = [0; 3];
    for (size, item) in size.iter_mut().zip(items) {
        *size = u32::try_from(item.as_integer()?).ok().filter(|&axis| axis > 0)?;
    }
    Some(size)
}

/// The file of an adapter below a folder of the tuner's.
///
/// A name must survive every file system, and two names must never meet: what is not plainly safe is percent-encoded,
/// which can be undone and so keeps different names apart, and a name that would be too long keeps its beginning and is
/// told apart by its digest. Capitals are encoded too, because file systems that fold case are mounted everywhere.
pub(super) fn adapter_file(adapter: &str) -> PathBuf {
    user_folder("XDG_CACHE_HOME", ".cache").join("vyre").join("tuner").join(file_name(adapter))
}

/// The name of an adapter's file.
pub(super) fn file_name(adapter: &str) -> String {
    format!("{}.toml", safe_name(adapter))
}

fn safe_name(name: &str) -> String {
    const LONGEST: usize = 160;
    /// Names that mean a device on Windows, whatever comes after the first dot.
    const DEVICES: [&str; 22] = [
        "con", "prn", "aux", "nul", "com1", "com2", "com3", "com4", "com5", "com6", "com7", "com8", "com9", "lpt1",
        "lpt2", "lpt3", "lpt4", "lpt5", "lpt6", "lpt7", "lpt8", "lpt9",
    ];
    // A lone sign decodes to nothing else.
    if name.is_empty() {
        return "%".to_owned();
    }
    let stem = name.split('.').next().unwrap_or_default().to_ascii_lowercase();
    let device = DEVICES.contains(&stem.as_str());
    let mut out = String::new();
    for (at, byte) in name.bytes().enumerate() {
        let plain = match byte {
            b'a'..=b'z' => !(device && at == 0),
            b'.' => at > 0,
            b'0'..=b'9' | b'-' | b'_' => true,
            _ => false,
        };
        if plain {
            out.push(byte as char);
        } else {
            out.push_str(&format!("%{byte:02x}"));
        }
        if out.len() > LONGEST {
            // Two signs in a row appear in no encoded name.
            out.truncate(64);
            return format!("{out}%%{}", blake3::hash(name.as_bytes()).to_hex());
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_short_way_reads_only_what_was_written_that_way() {
        let mut cache = TunerCache::default();
        cache.set("b", [1, 20, u32::MAX]);
        cache.set("a é", [3, 4, 5]);
        assert_eq!(decode_plain(&encode(&cache, "")).as_ref(), Some(&cache));
        assert_eq!(decode_plain(""), Some(TunerCache::default()));
        cache.set("new\nline", [1, 1, 1]);
        assert_eq!(decode_plain(&encode(&cache, "")), None);
        assert_eq!(decode(Path::new("x"), &encode(&cache, "")), Ok((cache, String::new())));
        let general = [
            "\"a\" = [1, 1, 1]\n\"a\" = [1, 1, 1]\n",
            "\"b\" = [1, 1, 1]\n\"a\" = [1, 1, 1]\n",
            "\"a\" = [01, 1, 1]\n",
            "\"a\" = [+1, 1, 1]\n",
            "\"a\" = [0, 1, 1]\n",
            "\"a\" = [1, 1]\n",
            "\"a\" = [1, 1, 1, 1]\n",
            "\"a\" = [4294967296, 1, 1]\n",
            "\"a\\n\" = [1, 1, 1]\n",
            "a = [1, 1, 1]\n",
            "\"a\" = [1, 1, 1] \n",
            "\n",
        ];
        for text in general {
            assert_eq!(decode_plain(text), None, "{text}");
        }
    }

    #[test]
    fn safe_names_can_be_undone() {
        let hostile =
            ["", ".", "..", "a/b", "a\\b", "%", "%25", "%%", "NUL", "nul.x", "é", "a b", "a\0b", "x.toml", "\n"];
        let mut seen = std::collections::BTreeSet::new();
        for name in hostile {
            let safe = safe_name(name);
            assert!(safe.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.%".contains(&b)), "{safe}");
            assert!(!safe.starts_with('.'));
            assert!(seen.insert(safe));
        }
        assert_eq!(safe_name("nvidia-h200_535.54"), "nvidia-h200_535.54");
        assert_ne!(safe_name("gpu-A").to_lowercase(), safe_name("gpu-a").to_lowercase(), "file systems may fold case");
        let long = ["x".repeat(10_000), "x".repeat(10_001), "é".repeat(5_000)].map(|name| safe_name(&name));
        assert!(long.iter().all(|name| name.len() < 200));
        assert!(long[0] != long[1] && long[1] != long[2]);
    }
}
