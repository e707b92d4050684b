//! A program as WGSL text that naga accepts and that imports again with the same meaning.
//!
//! WGSL leaves open what happens outside an array and makes errors of what its constant evaluation can't do; the text says
//! both explicitly. What a declaration can't say is in a comment on its line that the importer reads (`// vyre: output`), and
//! the launch domain is a function of the name `vyre_domain`.

mod expr;
mod literal;
mod statement;
mod types;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Write;

use naga::keywords::wgsl as keywords;
use vyre_foundation::ValidProgram;
use vyre_foundation::ir::{BufferKind, Builtin, Count, DataType, Expr, Literal, Name, Program};
use vyre_spec::{Diagnostic, codes};

use expr::Body;
use types::{Facts, MemberPath, Taken};

/// Prints a program as WGSL. What WGSL can't express is refused with the place and the cure.
pub fn export(program: &ValidProgram) -> Result<String, Diagnostic> {
    Exporter::new(program.program()).run()
}

/// As [`export`], for naga's SPIR-V back end: what it makes otherwise than a program means it is written out.
pub(crate) fn export_explicit(program: &ValidProgram) -> Result<String, Diagnostic> {
    Exporter { explicit: true, ..Exporter::new(program.program()) }.run()
}

/// A part was printed, or WGSL has no way to say it.
pub(crate) type Res<T> = Result<T, Diagnostic>;

pub(crate) fn refuse<T>(message: impl Into<String>) -> Res<T> {
    Err(Diagnostic::new(&codes::wgsl::EXPORT_UNSUPPORTED, message))
}

/// How a buffer is declared.
pub(crate) struct Buffer {
    pub(crate) text: String,
    pub(crate) kind: BufferKind,
    pub(crate) ty: DataType,
    pub(crate) count: Count,
    /// Declared as an array, else as its one element.
    pub(crate) is_array: bool,
    /// Parts that are atomics.
    pub(crate) atomics: HashSet<MemberPath>,
}

pub(crate) struct Exporter<'a> {
    pub(crate) program: &'a Program,
    /// Conversions and comparisons of floats are written so that a back end can't take them for others.
    pub(crate) explicit: bool,
    pub(crate) facts: Facts,
    pub(crate) buffers: HashMap<Name, Buffer>,
    pub(crate) constants: HashMap<Name, (String, DataType)>,
    pub(crate) functions: HashMap<Name, (String, Option<DataType>)>,
    pub(crate) structs: Vec<String>,
    /// Member names of each struct.
    pub(crate) members: Vec<Vec<String>>,
    /// Names of module scope.
    pub(crate) taken: Taken,
    /// Functions that the text needs, by name.
    pub(crate) helpers: BTreeMap<String, String>,
    pub(crate) uses_f16: bool,
    pub(crate) uses_subgroups: bool,
    /// Built-ins by the name of their variable, whether a function needs them.
    builtins: BTreeMap<&'static str, BuiltinUse>,
    atomic_structs: Vec<String>,
}

struct BuiltinUse {
    attribute: &'static str,
    ty: &'static str,
    in_function: bool,
}

impl<'a> Exporter<'a> {
    fn new(program: &'a Program) -> Self {
        Exporter {
            program,
            explicit: false,
            facts: Facts::new(program),
            buffers: HashMap::new(),
            constants: HashMap::new(),
            functions: HashMap::new(),
            structs: Vec::new(),
            members: Vec::new(),
            taken: Taken::default(),
            helpers: BTreeMap::new(),
            uses_f16: false,
            uses_subgroups: false,
            builtins: BTreeMap::new(),
            atomic_structs: Vec::new(),
        }
    }

    fn run(mut self) -> Res<String> {
        let program = self.program;
        self.taken.insert("vyre_domain".into());
        for (name, _, _) in BUILTINS {
            self.taken.insert(name.into());
            self.taken.insert(format!("p_{name}"));
        }
        for constant in program.constants() {
            let text = self.module_name(&constant.name);
            self.constants.insert(constant.name.clone(), (text, constant.default.data_type()));
        }
        for buffer in program.buffers() {
            let text = self.module_name(&buffer.name);
            let is_array = self.declared_as_array(buffer);
            let atomics = self.facts.atomics.get(&buffer.name).cloned().unwrap_or_default();
            let atomics = if buffer.kind == BufferKind::Read { HashSet::new() } else { atomics };
            self.buffers.insert(
                buffer.name.clone(),
                Buffer {
                    text,
                    kind: buffer.kind,
                    ty: buffer.ty.clone(),
                    count: buffer.count.clone(),
                    is_array,
                    atomics,
                },
            );
        }
        let entry_name = self.module_name(&Name::from(program.name()));
        for function in program.functions() {
            let text = self.module_name(&function.name);
            self.functions.insert(function.name.clone(), (text, function.result.clone()));
        }
        let structs = self.struct_texts()?;
        self.collect_builtins();
        let mut bodies = String::new();
        for function in program.functions() {
            if !self.facts.called.contains_key(&function.name) {
                continue;
            }
            let (text, _) = self.functions[&function.name].clone();
            bodies.push_str(&Body::function(&mut self, function, &text)?);
            bodies.push('\n');
        }
        bodies.push_str(&self.domain_text()?);
        let entry = self.entry_text(&entry_name, &bodies)?;
        bodies.push_str(&entry);
        let mut declarations = String::new();
        for constant in program.constants() {
            self.constant_text(&constant.name, &constant.default, &mut declarations)?;
        }
        for buffer in program.buffers() {
            self.buffer_text(buffer, &mut declarations)?;
        }
        for (name, builtin) in &self.builtins {
            if builtin.in_function {
                let _ = writeln!(declarations, "var<private> p_{name}: {};", builtin.ty);
            }
        }
        let mut text = String::new();
        if self.uses_f16 {
            text.push_str("enable f16;\n");
        }
        if self.uses_subgroups {
            text.push_str(
                "enable subgroups;
",
            );
        }
        for part in structs.iter().chain(&self.atomic_structs) {
            text.push_str(part);
        }
        text.push_str(&declarations);
        self.helpers.values().for_each(|helper| text.push_str(helper));
        text.push_str(&bodies);
        Ok(text)
    }

    /// A name for module scope.
    pub(crate) fn module_name(&mut self, wanted: &Name) -> String {
        self.taken.fresh(plain(wanted.as_str()))
    }

    fn constant_text(&mut self, name: &Name, default: &Literal, out: &mut String) -> Res<()> {
        let (text, ty) = self.constants[name].clone();
        let Some(value) = literal::constant(default) else {
            return refuse(format!("the default of specialization constant `{name}` is not a finite number"));
        };
        let ty = self.ty(&ty)?;
        let _ = writeln!(out, "override {text}: {ty} = {value};");
        Ok(())
    }

    fn domain_text(&mut self) -> Res<String> {
        let Some(domain) = self.program.domain() else { return Ok(String::new()) };
        let mut parts = Vec::with_capacity(3);
        for axis in domain {
            parts.push(self.size_text(axis)?);
        }
        Ok(format!("fn vyre_domain() -> vec3<u32> {{\n    return vec3<u32>({});\n}}\n\n", parts.join(", ")))
    }

    /// A size: an expression of literals, constants and lengths.
    pub(crate) fn size_text(&mut self, expr: &Expr) -> Res<String> {
        let mut body = Body::new(self, false);
        let text = body.expr(expr)?.text;
        if !body.out.is_empty() {
            return refuse("a size expression needs statements to be written in WGSL");
        }
        Ok(text)
    }

    fn entry_text(&mut self, name: &str, functions: &str) -> Res<String> {
        let program = self.program;
        let mut sizes = Vec::with_capacity(3);
        for (size, expr) in program.workgroup_size().iter().zip(program.workgroup_exprs()) {
            sizes.push(match expr {
                Some(expr) => self.size_text(expr)?,
                None => size.to_string(),
            });
        }
        let params: Vec<String> = self
            .builtins
            .iter()
            .map(|(name, builtin)| format!("@builtin({}) {name}: {}", builtin.attribute, builtin.ty))
            .collect();
        let copied: Vec<&'static str> =
            self.builtins.iter().filter(|(_, builtin)| builtin.in_function).map(|(name, _)| *name).collect();
        let mut body = Body::new(self, true);
        for name in copied {
            body.line(&format!("p_{name} = {name};"));
        }
        body.nodes(program.body())?;
        let statements = std::mem::take(&mut body.out);
        // The importer drops buffers that nothing mentions.
        let words = |text: &'_ str| -> HashSet<String> {
            text.split(|c: char| c != '_' && !c.is_ascii_alphanumeric()).map(str::to_owned).collect()
        };
        let (here, there) = (words(&statements), words(functions));
        let mut text = String::new();
        for buffer in program.buffers() {
            let name = &self.buffers[&buffer.name].text;
            if buffer.kind != BufferKind::Workgroup && !here.contains(name) && !there.contains(name) {
                let _ = writeln!(text, "    _ = &{name};");
            }
        }
        text.push_str(&statements);
        Ok(format!("@compute @workgroup_size({})\nfn {name}({}) {{\n{text}}}\n", sizes.join(", "), params.join(", ")))
    }

    fn collect_builtins(&mut self) {
        for &(kind, in_function) in &self.facts.builtins {
            let (name, attribute, ty) = BUILTINS[kind];
            self.uses_subgroups |= attribute.contains("subgroup");
            let entry = self.builtins.entry(name).or_insert(BuiltinUse { attribute, ty, in_function: false });
            entry.in_function |= in_function;
        }
    }

    /// The expression for a built-in in the entry point or in a function.
    pub(crate) fn builtin_text(&mut self, builtin: Builtin, in_entry: bool) -> Res<String> {
        let Some(kind) = builtin_kind(builtin) else {
            let Builtin::WorkgroupSize(axis) = builtin else { return refuse("an unknown built-in") };
            let axis = axis as usize;
            return match self.program.workgroup_exprs()[axis].clone() {
                Some(expr) => self.size_text(&expr),
                None => Ok(format!("{}u", self.program.workgroup_size()[axis])),
            };
        };
        let prefix = if in_entry { "" } else { "p_" };
        let name = BUILTINS[kind].0;
        let axis = match builtin {
            Builtin::GlobalId(axis)
            | Builtin::LocalId(axis)
            | Builtin::WorkgroupId(axis)
            | Builtin::NumWorkgroups(axis) => [".x", ".y", ".z"].get(axis as usize).copied().unwrap_or(".x"),
            _ => "",
        };
        Ok(format!("{prefix}{name}{axis}"))
    }
}

/// Variable, attribute and type of each built-in.
const BUILTINS: [(&str, &str, &str); 9] = [
    ("vyre_global_id", "global_invocation_id", "vec3<u32>"),
    ("vyre_local_id", "local_invocation_id", "vec3<u32>"),
    ("vyre_workgroup_id", "workgroup_id", "vec3<u32>"),
    ("vyre_num_workgroups", "num_workgroups", "vec3<u32>"),
    ("vyre_local_index", "local_invocation_index", "u32"),
    ("vyre_subgroup_size", "subgroup_size", "u32"),
    ("vyre_subgroup_lane", "subgroup_invocation_id", "u32"),
    ("vyre_subgroup_id", "subgroup_id", "u32"),
    ("vyre_num_subgroups", "num_subgroups", "u32"),
];

/// Position in [`BUILTINS`]; WGSL has no built-in for the workgroup size.
pub(crate) fn builtin_kind(builtin: Builtin) -> Option<usize> {
    Some(match builtin {
        Builtin::GlobalId(_) => 0,
        Builtin::LocalId(_) => 1,
        Builtin::WorkgroupId(_) => 2,
        Builtin::NumWorkgroups(_) => 3,
        Builtin::LocalIndex => 4,
        Builtin::SubgroupSize => 5,
        Builtin::SubgroupLane => 6,
        Builtin::SubgroupId => 7,
        Builtin::NumSubgroups => 8,
        Builtin::WorkgroupSize(_) => return None,
    })
}

/// The name as a WGSL identifier that means nothing else.
pub(crate) fn plain(wanted: &str) -> String {
    let mut name: String =
        wanted.chars().take(60).map(|c| if c == '_' || c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    if !name.starts_with(|c: char| c.is_ascii_alphabetic()) {
        name.insert(0, 'v');
    }
    if keywords::RESERVED_SET.contains(name.as_str()) || keywords::BUILTIN_IDENTIFIER_SET.contains(name.as_str()) {
        name.push('_');
    }
    name
}
