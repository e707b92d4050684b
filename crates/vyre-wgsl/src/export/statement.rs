//! Statements.

use vyre_foundation::ir::{AtomicOp, BarrierScope, BufferKind, Case, DataType, Expr, Literal, Name, Node};

use super::expr::{Body, Local, PlaceText};
use super::{Res, literal, refuse};

/// naga's parser allows 127 levels of braces.
const MAX_NESTING: usize = 100;

impl Body<'_, '_> {
    pub(crate) fn nodes(&mut self, nodes: &[Node]) -> Res<()> {
        if self.indent > MAX_NESTING {
            return refuse(format!("statements are nested more than {MAX_NESTING} deep"));
        }
        nodes.iter().try_for_each(|node| self.node(node))
    }

    fn nested(&mut self, nodes: &[Node]) -> Res<()> {
        self.enter();
        self.nodes(nodes)?;
        self.leave();
        Ok(())
    }

    fn node(&mut self, node: &Node) -> Res<()> {
        match node {
            Node::Let { name, value } => {
                let value = self.expr(value)?;
                let ty = self.ex.ty(&value.ty)?;
                let text = self.declare_known(name, value.ty, value.known);
                self.line(&format!("let {text}: {ty} = {};", value.text));
            }
            Node::Var { name, ty, init } => {
                let value = init.as_ref().map(|init| self.expr(init)).transpose()?;
                let ty_text = self.ex.ty(ty)?;
                let text = self.declare(name, ty.clone());
                match value {
                    Some(value) => self.line(&format!("var {text}: {ty_text} = {};", value.text)),
                    None => self.line(&format!("var {text}: {ty_text};")),
                }
            }
            Node::Assign { name, path, value } => {
                let Local { text, ty, .. } = self.lookup(name)?;
                let value = self.expr(value)?;
                let place = self.path(text, ty, path, Vec::new(), 0)?;
                let statement = format!("{} = {};", place.text, value.text);
                self.guarded_line(&place, &statement);
            }
            Node::Store { buffer, index, path, value } => self.store(buffer, index, path, value)?,
            Node::If { cond, then, otherwise } => {
                let cond = self.expr(cond)?;
                self.line(&format!("if {} {{", cond.text));
                self.nested(then)?;
                if !otherwise.is_empty() {
                    self.line("} else {");
                    self.nested(otherwise)?;
                }
                self.line("}");
            }
            Node::Switch { selector, cases } => self.switch(selector, cases)?,
            Node::For { var, from, to, step, body } => self.counted(var, from, to, *step, body)?,
            Node::Loop { body, continuing, break_if } => {
                self.line("loop {");
                self.enter();
                self.nodes(body)?;
                if !continuing.is_empty() || break_if.is_some() {
                    self.line("continuing {");
                    self.enter();
                    self.nodes(continuing)?;
                    if let Some(cond) = break_if {
                        let cond = self.expr(cond)?;
                        self.line(&format!("break if {};", cond.text));
                    }
                    self.leave();
                    self.line("}");
                }
                self.leave();
                self.line("}");
            }
            Node::Break => self.line("break;"),
            Node::Continue => self.line("continue;"),
            Node::Return(None) => self.line("return;"),
            Node::Return(Some(value)) => {
                let value = self.expr(value)?;
                self.line(&format!("return {};", value.text));
            }
            Node::Barrier(BarrierScope::Workgroup) => self.line("workgroupBarrier();"),
            Node::Barrier(BarrierScope::Storage) => self.line("storageBarrier();"),
            Node::Atomic { op, buffer, index, path, value, compare, result } => {
                let place = self.buffer_place(buffer, index, path)?;
                let value = value.as_ref().map(|value| self.expr(value)).transpose()?;
                let compare = compare.as_ref().map(|compare| self.expr(compare)).transpose()?;
                let texts = (value.map(|value| value.text), compare.map(|compare| compare.text));
                self.atomic(*op, buffer, &place, texts, result.as_ref())?;
            }
            Node::Call { function, args, result } => {
                let args = args.iter().map(|arg| self.expr(arg)).collect::<Res<Vec<_>>>()?;
                let args: Vec<String> = args.into_iter().map(|arg| arg.text).collect();
                let Some((text, returned)) = self.ex.functions.get(function).cloned() else {
                    return refuse(format!("no function `{function}`"));
                };
                let call = format!("{text}({});", args.join(", "));
                match (result, returned) {
                    (Some(result), Some(ty)) => {
                        let name = self.declare(result, ty);
                        self.line(&format!("let {name} = {call}"));
                    }
                    _ => self.line(&call),
                }
            }
            Node::Block(nodes) => {
                self.line("{");
                self.nested(nodes)?;
                self.line("}");
            }
        }
        Ok(())
    }

    /// A statement that only happens where the place exists.
    fn guarded_line(&mut self, place: &PlaceText, statement: &str) {
        if place.nowhere {
            return;
        }
        match place.guard() {
            Some(guard) => self.line(&format!("if {guard} {{ {statement} }}")),
            None => self.line(statement),
        }
    }

    fn store(&mut self, buffer: &Name, index: &Expr, path: &[vyre_foundation::ir::Access], value: &Expr) -> Res<()> {
        let value = self.expr(value)?;
        let place = self.buffer_place(buffer, index, path)?;
        let atomics = self.ex.buffers[buffer].atomics.clone();
        let at = super::types::member_path(path);
        let host = self.ex.buffers[buffer].kind != BufferKind::Workgroup;
        let scalar = place.ty.as_vector().map_or_else(|| place.ty.clone(), |(element, _)| element);
        let statement = if atomics.contains(&at) {
            format!("atomicStore(&{}, {});", place.text, value.text)
        } else if atomics.iter().any(|path| path.len() > at.len() && path.starts_with(&at)) {
            return refuse(format!("buffer `{buffer}` has atomic parts and is stored to as a whole"));
        } else if host && scalar == DataType::Bool {
            let word = match place.ty.as_vector() {
                Some((_, count)) => format!("vec{count}<u32>"),
                None => "u32".into(),
            };
            format!("{} = {word}({});", place.text, value.text)
        } else {
            format!("{} = {};", place.text, value.text)
        };
        self.guarded_line(&place, &statement);
        Ok(())
    }

    fn switch(&mut self, selector: &Expr, cases: &[Case]) -> Res<()> {
        let selector = self.expr(selector)?;
        self.line(&format!("switch {} {{", selector.text));
        self.indent += 1;
        for case in cases {
            let mut labels: Vec<String> = Vec::with_capacity(case.values.len() + 1);
            for value in &case.values {
                let Some(text) = literal::constant(value) else { return refuse("a case that is no integer") };
                labels.push(text);
            }
            if case.default {
                labels.push("default".into());
            }
            if labels.is_empty() {
                continue;
            }
            let labels = labels.join(", ");
            self.line(&if labels == "default" { "default: {".into() } else { format!("case {labels}: {{") });
            self.nested(&case.body)?;
            self.line("}");
        }
        if !cases.iter().any(|case| case.default) {
            self.line("default: {}");
        }
        self.indent -= 1;
        self.line("}");
        Ok(())
    }

    /// A counted loop never wraps: with a step over one, what is left is compared before the count moves on.
    fn counted(&mut self, var: &Name, from: &Expr, to: &Expr, step: u32, body: &[Node]) -> Res<()> {
        let (from, to) = (self.expr(from)?, self.expr(to)?);
        let ty = self.ex.ty(&from.ty)?;
        let limit = self.temporary();
        self.line(&format!("let {limit}: {ty} = {};", to.text));
        let suffix = if from.ty == DataType::I32 { "i" } else { "u" };
        self.enter();
        let counter = self.declare(var, from.ty.clone());
        self.indent -= 1;
        if step == 1 {
            self.line(&format!(
                "for (var {counter}: {ty} = {}; {counter} < {limit}; {counter} += 1{suffix}) {{",
                from.text
            ));
            self.indent += 1;
            self.nodes(body)?;
        } else {
            self.line(&format!("var {counter}: {ty} = {};", from.text));
            self.line("loop {");
            self.indent += 1;
            self.line(&format!("if {counter} >= {limit} {{ break; }}"));
            self.nodes(body)?;
            let left = self.temporary();
            self.line("continuing {");
            self.line(&format!("    let {left} = bitcast<u32>({limit}) - bitcast<u32>({counter});"));
            let Some(by) = literal::constant(&match suffix {
                "i" => Literal::I32(step as i32),
                _ => Literal::U32(step),
            }) else {
                return refuse("a step that is no integer");
            };
            self.line(&format!("    {counter} += {by};"));
            self.line(&format!("    break if {left} <= {step}u;"));
            self.line("}");
        }
        self.leave();
        self.line("}");
        Ok(())
    }

    fn atomic(
        &mut self,
        op: AtomicOp,
        buffer: &Name,
        place: &PlaceText,
        (value, compare): (Option<String>, Option<String>),
        result: Option<&Name>,
    ) -> Res<()> {
        let target = &place.text;
        let value = value.unwrap_or_default();
        let read_only = self.ex.buffers[buffer].kind == BufferKind::Read;
        let call = match op {
            AtomicOp::Load if read_only => target.clone(),
            AtomicOp::Load => format!("atomicLoad(&{target})"),
            AtomicOp::Store => {
                self.guarded_line(place, &format!("atomicStore(&{target}, {value});"));
                return Ok(());
            }
            AtomicOp::Add => format!("atomicAdd(&{target}, {value})"),
            AtomicOp::Sub => format!("atomicSub(&{target}, {value})"),
            AtomicOp::Min => format!("atomicMin(&{target}, {value})"),
            AtomicOp::Max => format!("atomicMax(&{target}, {value})"),
            AtomicOp::And => format!("atomicAnd(&{target}, {value})"),
            AtomicOp::Or => format!("atomicOr(&{target}, {value})"),
            AtomicOp::Xor => format!("atomicXor(&{target}, {value})"),
            AtomicOp::Exchange => format!("atomicExchange(&{target}, {value})"),
            AtomicOp::CompareExchange => {
                format!("atomicCompareExchangeWeak(&{target}, {}, {value}).old_value", compare.unwrap_or_default())
            }
        };
        let Some(result) = result else {
            let statement = if matches!(op, AtomicOp::CompareExchange | AtomicOp::Load) {
                format!("_ = {call};")
            } else {
                format!("{call};")
            };
            self.guarded_line(place, &statement);
            return Ok(());
        };
        let ty = self.ex.ty(&place.ty)?;
        if place.guards.is_empty() && !place.nowhere {
            let name = self.declare(result, place.ty.clone());
            self.line(&format!("let {name} = {call};"));
        } else {
            let name = self.declare(result, place.ty.clone());
            self.line(&format!("var {name}: {ty};"));
            self.guarded_line(place, &format!("{name} = {call};"));
        }
        Ok(())
    }
}
