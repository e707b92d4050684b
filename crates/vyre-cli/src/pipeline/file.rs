//! Pipelines as TOML files hold them.

use std::ops::Range;
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};
use vyre::{Diagnostic, SourceLocation, codes};

use super::{PassSpec, Spec};
use crate::args::{self, Inputs, Launch};
use crate::data::Place;
use crate::report::Failure;
use crate::source::nearest;

/// Longer files are no pipelines.
const LONGEST: u64 = 1 << 20;
/// More passes than that are not written by hand.
const MOST_PASSES: usize = 256;

/// Reads a pipeline file.
pub(super) fn read(path: &Path) -> Result<Spec, Failure> {
    let name = path.display().to_string();
    let cant_read = |why: String| Diagnostic::new(&codes::command::CANT_READ, format!("`{name}` can't be read: {why}"));
    let there = std::fs::metadata(path).map_err(|error| cant_read(error.to_string()))?;
    if !there.is_file() || there.len() > LONGEST {
        return Err(cant_read(format!("it is no file of at most {LONGEST} bytes")).into());
    }
    let bytes = std::fs::read(path).map_err(|error| cant_read(error.to_string()))?;
    let text = String::from_utf8(bytes)
        .map_err(|_| Diagnostic::new(&codes::command::BAD_PIPELINE, format!("`{name}` is not text")))?;
    let folder = path.parent().unwrap_or(Path::new("")).to_owned();
    let file = File { name, text: &text, folder };
    let table = DeTable::parse(&text).map_err(|error| {
        let at = error.span().unwrap_or(0..0);
        file.problem(error.message().trim_end().to_owned(), at)
    })?;
    file.spec(table.get_ref())
}

struct File<'t> {
    name: String,
    text: &'t str,
    folder: PathBuf,
}

type Entry<'t> = Spanned<DeValue<'t>>;

impl File<'_> {
    fn problem(&self, message: String, at: Range<usize>) -> Failure {
        let end = self.text.len();
        let (from, to) = (at.start.min(end), at.end.min(end));
        // What spans several lines is shown where it begins.
        let to = self.text.get(from..to).and_then(|part| part.find('\n')).map_or(to, |newline| from + newline);
        Diagnostic::new(&codes::command::BAD_PIPELINE, message)
            .with_source(SourceLocation::in_text(Some(&self.name), self.text, from, to.max(from)))
            .into()
    }

    fn unknown(&self, key: &Spanned<std::borrow::Cow<'_, str>>, known: &[&str], what: &str) -> Failure {
        let name = key.get_ref();
        let hint = match nearest(name, known) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("there are {}", known.join(", ")),
        };
        self.problem(format!("{what} has no `{name}`; {hint}"), key.span())
    }

    fn spec(&self, table: &DeTable<'_>) -> Result<Spec, Failure> {
        const KEYS: [&str; 9] = ["pass", "in", "shape", "out", "swap", "steps", "every", "cast", "timeout"];
        let mut spec = Spec::default();
        for (key, value) in table {
            match key.get_ref().as_ref() {
                "pass" => spec.passes = self.passes(value)?,
                "in" => self.named(value, "", &mut |name, value| {
                    let from = self.source(value)?;
                    spec.inputs.inputs.push(format!("{name}={from}"));
                    Ok(())
                })?,
                "shape" => self.named(value, "", &mut |name, value| {
                    spec.inputs.shapes.push(format!("{name}={}", self.list(value, "x")?));
                    Ok(())
                })?,
                "out" => self.named(value, "", &mut |name, value| {
                    spec.outputs.push(format!("{name}={}", self.string(value)?));
                    Ok(())
                })?,
                "swap" => spec.swaps = self.swaps(value)?,
                "steps" => spec.steps = Some(self.count(value)?),
                "every" => spec.every = Some(self.count(value)?),
                "cast" => spec.inputs.cast = self.boolean(value)?,
                "timeout" => {
                    let seconds = args::seconds(&self.list(value, ",")?);
                    spec.inputs.timeout = Some(seconds.map_err(|why| self.problem(why, value.span()))?);
                }
                _ => return Err(self.unknown(key, &KEYS, "a pipeline")),
            }
        }
        if spec.passes.is_empty() {
            return Err(self
                .problem("the pipeline has no pass: write `[[pass]]` and `kernel = \"FILE.wgsl\"`".to_owned(), 0..0));
        }
        Ok(spec)
    }

    fn passes(&self, value: &Entry<'_>) -> Result<Vec<PassSpec>, Failure> {
        let DeValue::Array(list) = value.get_ref() else {
            return Err(self.problem("passes are written as `[[pass]]`".to_owned(), value.span()));
        };
        if list.len() > MOST_PASSES {
            return Err(self.problem(format!("a pipeline has at most {MOST_PASSES} passes"), value.span()));
        }
        list.iter().map(|pass| self.pass(pass)).collect()
    }

    fn pass(&self, value: &Entry<'_>) -> Result<PassSpec, Failure> {
        const KEYS: [&str; 9] = ["kernel", "entry", "set", "bind", "grid", "domain", "workgroup", "force", "math"];
        let DeValue::Table(table) = value.get_ref() else {
            return Err(self.problem("a pass is a table with a `kernel`".to_owned(), value.span()));
        };
        let mut kernel = None;
        let mut launch = Launch::default();
        let mut bind = Vec::new();
        for (key, value) in table {
            match key.get_ref().as_ref() {
                "kernel" => kernel = Some(self.folder.join(self.string(value)?)),
                "entry" => launch.entry = Some(self.string(value)?),
                "set" => self.named(value, "", &mut |name, value| {
                    launch.set.push(format!("{name}={}", self.list(value, ",")?));
                    Ok(())
                })?,
                "bind" => self.named(value, "", &mut |name, value| {
                    bind.push((name.to_owned(), self.string(value)?));
                    Ok(())
                })?,
                "grid" => launch.grid = Some(self.size(value)?),
                "domain" => launch.domain = Some(self.size(value)?),
                "workgroup" => launch.workgroup = Some(self.size(value)?),
                "force" => launch.force = self.boolean(value)?,
                "math" => {
                    let math = args::math(&self.string(value)?);
                    launch.math = Some(math.map_err(|why| self.problem(why, value.span()))?);
                }
                _ => return Err(self.unknown(key, &KEYS, "a pass")),
            }
        }
        if launch.grid.is_some() && launch.domain.is_some() {
            return Err(self.problem("a pass has a `grid` or a `domain`, not both".to_owned(), value.span()));
        }
        let kernel = kernel
            .ok_or_else(|| self.problem("a pass needs a `kernel`, the name of a file".to_owned(), value.span()))?;
        Ok(PassSpec { kernel, launch, bind })
    }

    /// Every value below a table, with the way there as its name.
    fn named(
        &self,
        value: &Entry<'_>,
        above: &str,
        each: &mut dyn FnMut(&str, &Entry<'_>) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let DeValue::Table(table) = value.get_ref() else {
            return Err(self.problem("a table of names and values is expected here".to_owned(), value.span()));
        };
        for (key, value) in table {
            let name = match above {
                "" => key.get_ref().to_string(),
                above => format!("{above}.{}", key.get_ref()),
            };
            match value.get_ref() {
                DeValue::Table(_) => self.named(value, &name, each)?,
                _ => each(&name, value)?,
            }
        }
        Ok(())
    }

    fn swaps(&self, value: &Entry<'_>) -> Result<Vec<String>, Failure> {
        let DeValue::Array(list) = value.get_ref() else { return Ok(vec![self.string(value)?]) };
        let pair = |one: &Entry<'_>| match one.get_ref() {
            DeValue::Array(_) => self.list(one, ","),
            _ => self.string(one),
        };
        // `["a", "b"]` is one pair, `["a,b", "c,d"]` and `[["a", "b"]]` are several.
        let is_name = |one: &Entry<'_>| matches!(one.get_ref(), DeValue::String(text) if !text.contains(','));
        match list.iter().all(is_name) {
            true => Ok(vec![self.list(value, ",")?]),
            false => list.iter().map(pair).collect(),
        }
    }

    /// What `--in` takes: files are found beside the pipeline's own.
    fn source(&self, value: &Entry<'_>) -> Result<String, Failure> {
        let text = self.list(value, ",")?;
        let place = Place::new(&text);
        let beside = self.folder.join(place.path);
        if !matches!(value.get_ref(), DeValue::String(_)) || place.is_standard() || !beside.is_file() {
            return Ok(text);
        }
        Ok(format!("{}{}", &text[..text.len() - place.path.len()], beside.display()))
    }

    fn string(&self, value: &Entry<'_>) -> Result<String, Failure> {
        match value.get_ref() {
            DeValue::String(text) if !text.is_empty() => Ok(text.to_string()),
            _ => Err(self.problem("a text in quotes is expected here".to_owned(), value.span())),
        }
    }

    fn boolean(&self, value: &Entry<'_>) -> Result<bool, Failure> {
        match value.get_ref() {
            DeValue::Boolean(value) => Ok(*value),
            _ => Err(self.problem("`true` or `false` is expected here".to_owned(), value.span())),
        }
    }

    fn count(&self, value: &Entry<'_>) -> Result<u32, Failure> {
        let count = match value.get_ref() {
            DeValue::Integer(number) => u32::from_str_radix(number.as_str(), number.radix()).ok(),
            _ => None,
        };
        count.filter(|count| *count > 0).ok_or_else(|| {
            self.problem(format!("a whole number from 1 to {} is expected here", u32::MAX), value.span())
        })
    }

    fn size(&self, value: &Entry<'_>) -> Result<[u32; 3], Failure> {
        args::size(&self.list(value, "x")?).map_err(|why| self.problem(why, value.span()))
    }

    /// A number or a text, or several of them in a row.
    fn list(&self, value: &Entry<'_>, between: &str) -> Result<String, Failure> {
        match value.get_ref() {
            DeValue::String(_) => self.string(value),
            DeValue::Integer(number) => Ok(number.to_string()),
            DeValue::Float(number) => Ok(number.to_string()),
            DeValue::Boolean(value) => Ok(value.to_string()),
            DeValue::Array(list)
                if !list.is_empty() && list.iter().all(|one| !matches!(one.get_ref(), DeValue::Array(_))) =>
            {
                let parts = list.iter().map(|one| self.list(one, between)).collect::<Result<Vec<_>, _>>()?;
                Ok(parts.join(between))
            }
            _ => Err(self.problem("a number, a text or a list of them is expected here".to_owned(), value.span())),
        }
    }
}

impl Default for Spec {
    fn default() -> Spec {
        let inputs =
            Inputs { inputs: Vec::new(), cast: false, shapes: Vec::new(), backend: "auto".to_owned(), timeout: None };
        Spec { passes: Vec::new(), inputs, outputs: Vec::new(), swaps: Vec::new(), steps: None, every: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &str) -> Result<Spec, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("p.toml");
        std::fs::write(&path, text).unwrap();
        read(&path).map_err(|failure| match failure {
            Failure::Diagnostics(problems) => vyre::diagnostics::render(&problems[0]),
            _ => String::new(),
        })
    }

    #[test]
    fn a_pipeline_is_read() {
        let spec = read_text(
            "steps = 0x10\nswap = ['a', 'b']\n[in]\na = 'iota:8'\np.n = 3\nlist = [1, 2.5]\n[shape]\nb = [4, 2]\nc = '1e3'\n[out]\na = 'f-%04d.png'\n\
             [[pass]]\nkernel = 'k.wgsl'\nentry = 'one'\nset = { width = 4, on = true }\nbind.x = 'a'\n\
             [[pass]]\nkernel = 'k.wgsl'\ndomain = '8x2'\n",
        )
        .unwrap();
        assert_eq!((spec.steps, spec.every, spec.passes.len()), (Some(16), None, 2));
        assert_eq!(spec.swaps, ["a,b"]);
        assert_eq!(spec.inputs.inputs, ["a=iota:8", "list=1,2.5", "p.n=3"]);
        assert_eq!(spec.inputs.shapes, ["b=4x2", "c=1e3"]);
        assert_eq!(spec.passes[0].bind, [("x".to_owned(), "a".to_owned())]);
        assert_eq!(spec.passes[0].launch.set, ["on=true", "width=4"]);
        assert_eq!(spec.passes[1].launch.domain, Some([8, 2, 1]));
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line() {
        for (text, line, said) in [
            ("", 1, "no pass"),
            ("steps = 1\n[[pass]]\n", 2, "needs a `kernel`"),
            ("steps = 0\n", 1, "from 1 to"),
            ("steps = -1\n", 1, "from 1 to"),
            ("steps = 99999999999999999999\n", 1, "from 1 to"),
            ("steps = 1\nsteps = 2\n", 2, "duplicate key"),
            ("\n\nstep = 1\n", 3, "did you mean `steps`?"),
            ("[[pass]]\nkernel = 1\n", 2, "text in quotes"),
            ("[[pass]]\nkernel = 'k'\ngrid = '1x2x3x4'\n", 3, "at most three"),
            ("[[pass]]\nkernel = 'k'\ngrid = 'ax2'\n", 3, "not a size"),
            ("[[pass]]\nkernel = 'k'\ngrid = 1\ndomain = 2\n", 1, "not both"),
            ("[pass]\nkernel = 'k'\n", 1, "[[pass]]"),
            ("in = 3\n", 1, "a table of names"),
            ("swap = [[[1]]]\n", 1, "a list of them"),
            ("[in]\na = 1979-05-27\n", 2, "a number"),
            ("x = [\n", 1, "unclosed"),
            ("\u{7f}\u{0}", 1, ""),
        ] {
            let told = read_text(text).err().unwrap_or_else(|| panic!("{text:?} is taken"));
            assert!(told.contains("V1718") && told.contains("Fix: "), "{text:?}: {told}");
            assert!(told.contains(&format!("p.toml:{line}:")), "{text:?}: {told}");
            assert!(told.contains(said), "{text:?}: {told}");
        }
        assert!(read_text(&"[".repeat(100_000)).is_err());
        assert!(read_text(&format!("x = {}", "[".repeat(100_000))).is_err());
    }
}
