//! Expressions. What WGSL can't nest becomes a `let` or `var` in front of the statement.

use std::collections::{HashMap, HashSet};

use vyre_foundation::ir::{
    Access, BinaryOp, BufferKind, Builtin, Count, DataType, Expr, Function, Literal, MathOp, Name, SubgroupOp, TypeDef,
    UnaryOp,
};

use super::types::{MemberPath, Taken, member_path};
use super::{Exporter, Res, literal, plain, refuse};

/// Deeper expressions are cut by a `let`: naga's parser has a limit.
const MAX_DEPTH: u32 = 16;

/// When a value is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Known {
    /// To the front end, which evaluates it and refuses what overflows.
    Always,
    /// With the specialization.
    Specialized,
    /// When the kernel runs.
    Running,
}

/// A declared name.
#[derive(Clone, Debug)]
pub(crate) struct Local {
    pub(crate) text: String,
    pub(crate) ty: DataType,
    known: Known,
}

/// A printed expression.
#[derive(Clone, Debug)]
pub(crate) struct Text {
    pub(crate) text: String,
    pub(crate) ty: DataType,
    depth: u32,
    pub(crate) known: Known,
}

impl Text {
    fn running(text: String, ty: DataType, depth: u32) -> Text {
        Text { text, ty, depth, known: Known::Running }
    }

    /// A name or a literal.
    fn is_simple(&self) -> bool {
        self.depth == 0
    }
}

/// A place in a buffer or variable: its text, and what must hold for it to exist.
pub(crate) struct PlaceText {
    pub(crate) text: String,
    pub(crate) guards: Vec<String>,
    pub(crate) ty: DataType,
    /// A constant index is outside, so that the place never exists.
    pub(crate) nowhere: bool,
    depth: u32,
}

impl PlaceText {
    pub(crate) fn guard(&self) -> Option<String> {
        match self.guards.as_slice() {
            [] => None,
            [only] => Some(only.clone()),
            many => Some(many.join(" & ")),
        }
    }
}

/// The statements of one function being printed.
pub(crate) struct Body<'e, 'a> {
    pub(crate) ex: &'e mut Exporter<'a>,
    pub(crate) out: String,
    pub(crate) indent: usize,
    pub(crate) result: Option<DataType>,
    in_entry: bool,
    scopes: Vec<HashMap<Name, Local>>,
    locals: Taken,
}

impl<'e, 'a> Body<'e, 'a> {
    pub(crate) fn new(ex: &'e mut Exporter<'a>, in_entry: bool) -> Self {
        let locals = ex.taken.clone();
        Body { ex, out: String::new(), indent: 1, result: None, in_entry, scopes: vec![HashMap::new()], locals }
    }

    pub(crate) fn function(ex: &'e mut Exporter<'a>, function: &Function, text: &str) -> Res<String> {
        let mut body = Body::new(ex, false);
        let mut params = Vec::with_capacity(function.params.len());
        for param in &function.params {
            let name = body.declare(&param.name, param.ty.clone());
            params.push(format!("{name}: {}", body.ex.ty(&param.ty)?));
        }
        let result = match &function.result {
            Some(ty) => format!(" -> {}", body.ex.ty(ty)?),
            None => String::new(),
        };
        body.result = function.result.clone();
        // A body may hide a parameter; in WGSL they share a scope, but names are made unique anyway.
        body.scopes.push(HashMap::new());
        body.nodes(&function.body)?;
        let statements = std::mem::take(&mut body.out);
        Ok(format!("fn {text}({}){result} {{\n{statements}}}\n", params.join(", ")))
    }

    pub(crate) fn line(&mut self, text: &str) {
        for _ in 0..self.indent {
            self.out.push_str("    ");
        }
        self.out.push_str(text);
        self.out.push('\n');
    }

    /// A new name in the innermost scope.
    pub(crate) fn declare(&mut self, name: &Name, ty: DataType) -> String {
        self.declare_known(name, ty, Known::Running)
    }

    /// A new name for a value that the front end may know.
    pub(crate) fn declare_known(&mut self, name: &Name, ty: DataType, known: Known) -> String {
        let text = self.locals.fresh(plain(name.as_str()));
        if let Some(scope) = self.scopes.last_mut() {
            scope.insert(name.clone(), Local { text: text.clone(), ty, known });
        }
        text
    }

    pub(crate) fn enter(&mut self) {
        self.indent += 1;
        self.scopes.push(HashMap::new());
    }

    pub(crate) fn leave(&mut self) {
        self.indent -= 1;
        self.scopes.pop();
    }

    pub(crate) fn lookup(&self, name: &Name) -> Res<Local> {
        match self.scopes.iter().rev().find_map(|scope| scope.get(name)) {
            Some(found) => Ok(found.clone()),
            None => refuse(format!("the name `{name}` is not declared")),
        }
    }

    pub(crate) fn temporary(&mut self) -> String {
        self.locals.fresh("t".into())
    }

    /// Names a value, so that it can be written more than once.
    fn named(&mut self, value: Text) -> Text {
        if value.is_simple() {
            return value;
        }
        let name = self.temporary();
        self.line(&format!("let {name} = {};", value.text));
        Text { text: name, depth: 0, ..value }
    }

    /// Puts a value into a variable, where no front end evaluates it.
    fn in_variable(&mut self, value: Text) -> Res<Text> {
        let name = self.temporary();
        let ty = self.ex.ty(&value.ty)?;
        self.line(&format!("var {name}: {ty} = {};", value.text));
        Ok(Text::running(name, value.ty, 0))
    }

    fn is_int(ty: &DataType) -> bool {
        let scalar = ty.as_vector().map_or_else(|| ty.clone(), |(element, _)| element);
        matches!(scalar, DataType::U32 | DataType::I32 | DataType::U64 | DataType::I64)
    }

    fn is_float(ty: &DataType) -> bool {
        matches!(Self::scalar_of(ty), DataType::F16 | DataType::F32 | DataType::F64)
    }

    /// A float as the nearest whole number towards zero that the type has, and 0 where it is none. A back end may stop at the last
    /// float before the end of the type instead.
    fn whole_part(&mut self, to: &DataType, value: Text) -> Res<Text> {
        let value = if Self::scalar_of(&value.ty) == DataType::F16 {
            let wide = Self::with_element(&value.ty, DataType::F32);
            Text { text: format!("{}({})", self.ex.ty(&wide)?, value.text), ty: wide, depth: value.depth + 1, ..value }
        } else {
            value
        };
        let value = self.named(value);
        // The first float beyond the type, and the last number in it.
        let (beyond, last) = match Self::scalar_of(to) {
            DataType::I32 => ("2147483648.0", "2147483647i"),
            DataType::U32 => ("4294967296.0", "4294967295u"),
            DataType::I64 => ("9223372036854775808.0", "9223372036854775807li"),
            _ => ("18446744073709551616.0", "18446744073709551615lu"),
        };
        let (from, whole, text) = (self.ex.ty(&value.ty)?, self.ex.ty(to)?, value.text);
        let inside = format!("select({whole}({last}), {whole}({text}), ({text} < {from}({beyond})))");
        let text = format!("select({whole}(), {inside}, ({text} == {text}))");
        Ok(Text { text, ty: to.clone(), depth: 4, known: value.known })
    }

    fn with_element(ty: &DataType, element: DataType) -> DataType {
        match ty.as_vector() {
            Some((_, count)) => DataType::vector(element, count),
            None => element,
        }
    }

    fn scalar_of(ty: &DataType) -> DataType {
        ty.as_vector().map_or_else(|| ty.clone(), |(element, _)| element)
    }

    /// The zero of a type.
    pub(crate) fn zero(&mut self, ty: &DataType) -> Res<String> {
        Ok(format!("{}()", self.ex.ty(ty)?))
    }

    pub(crate) fn expr(&mut self, expr: &Expr) -> Res<Text> {
        let text = self.expr_at_any_depth(expr)?;
        if text.depth >= MAX_DEPTH { Ok(self.named(text)) } else { Ok(text) }
    }

    fn expr_at_any_depth(&mut self, expr: &Expr) -> Res<Text> {
        match expr {
            Expr::Literal(value) => self.literal(value),
            Expr::Var(name) => {
                let Local { text, ty, known } = self.lookup(name)?;
                Ok(Text { text, ty, depth: 0, known })
            }
            Expr::Constant(name) => match self.ex.constants.get(name) {
                Some((text, ty)) => {
                    Ok(Text { text: text.clone(), ty: ty.clone(), depth: 0, known: Known::Specialized })
                }
                None => refuse(format!("the constant `{name}` is not declared")),
            },
            Expr::Load { buffer, index, path } => {
                let place = self.buffer_place(buffer, index, path)?;
                let leaf = self.buffer_value(buffer, &place, path)?;
                self.guarded(place, leaf)
            }
            Expr::Length(buffer) => {
                let text = self.length(buffer)?;
                let known = match self.ex.buffers.get(buffer).map(|buffer| &buffer.count) {
                    Some(Count::Fixed(_)) => Known::Always,
                    Some(Count::Constant(_)) => Known::Specialized,
                    _ => Known::Running,
                };
                Ok(Text { text, ty: DataType::U32, depth: 1, known })
            }
            Expr::Builtin(builtin) => {
                let text = self.ex.builtin_text(*builtin, self.in_entry)?;
                let known = match builtin {
                    Builtin::WorkgroupSize(axis) => match &self.ex.program.workgroup_exprs()[*axis as usize] {
                        Some(_) => Known::Specialized,
                        None => Known::Always,
                    },
                    _ => Known::Running,
                };
                Ok(Text { text, ty: DataType::U32, depth: 0, known })
            }
            Expr::Unary { op, value } => {
                let mut value = self.expr(value)?;
                if value.known == Known::Always && Self::is_int(&value.ty) {
                    value = self.in_variable(value)?;
                }
                let op = match op {
                    UnaryOp::Neg => "-",
                    UnaryOp::Not if Self::scalar_of(&value.ty) == DataType::Bool => "!",
                    UnaryOp::Not => "~",
                };
                Ok(Text { text: format!("({op}({}))", value.text), depth: value.depth + 2, ..value })
            }
            Expr::Binary { op, left, right } => self.binary(*op, left, right),
            Expr::Math { op, args } => self.math(*op, args),
            Expr::Select { cond, yes, no } => {
                let (cond, yes, no) = (self.expr(cond)?, self.expr(yes)?, self.expr(no)?);
                if matches!(yes.ty, DataType::Handle(_)) {
                    return self.select_composite(cond, yes, no);
                }
                let constant = [&cond, &yes, &no].iter().all(|part| part.known == Known::Always);
                let cond = if constant { self.in_variable(cond)? } else { cond };
                let depth = cond.depth.max(yes.depth).max(no.depth) + 1;
                let known = cond.known.max(yes.known).max(no.known);
                let text = format!("select({}, {}, {})", no.text, yes.text, cond.text);
                Ok(Text { text, ty: yes.ty, depth, known })
            }
            Expr::Cast { to, value } => {
                let value = self.expr(value)?;
                if same_type(to, &value.ty) {
                    return Ok(value);
                }
                let value = self.not_constant(value)?;
                if self.ex.explicit && Self::is_int(to) && Self::is_float(&value.ty) {
                    return self.whole_part(to, value);
                }
                let text = format!("{}({})", self.ex.ty(to)?, value.text);
                Ok(Text { text, ty: to.clone(), depth: value.depth + 1, known: value.known })
            }
            Expr::BitCast { to, value } => {
                let value = self.expr(value)?;
                if same_type(to, &value.ty) {
                    return Ok(value);
                }
                let lanes = |ty: &DataType| ty.as_vector().map_or(1, |(_, count)| count);
                if lanes(to) != lanes(&value.ty) {
                    return refuse(format!("a bit cast from {} to {to} has no WGSL form here", value.ty));
                }
                let value = self.not_constant(value)?;
                let text = format!("bitcast<{}>({})", self.ex.ty(to)?, value.text);
                Ok(Text { text, ty: to.clone(), depth: value.depth + 1, known: value.known })
            }
            Expr::Construct { ty, parts } => {
                let name = self.ex.ty(ty)?;
                let parts = parts.iter().map(|part| self.expr(part)).collect::<Res<Vec<_>>>()?;
                let known = parts.iter().map(|part| part.known).max().unwrap_or(Known::Always);
                let depth = parts.iter().map(|part| part.depth).max().unwrap_or(0) + 1;
                let parts: Vec<String> = parts.into_iter().map(|part| part.text).collect();
                Ok(Text { text: format!("{name}({})", parts.join(", ")), ty: ty.clone(), depth, known })
            }
            Expr::Swizzle { value, lanes } => {
                // naga miscounts the components where it evaluates this on a constructor that holds a zero vector.
                let built = matches!(**value, Expr::Construct { .. });
                let value = self.expr(value)?;
                let value = if built { self.not_constant(value)? } else { value };
                let element = Self::scalar_of(&value.ty);
                let letters: String = lanes.iter().map(|&lane| ['x', 'y', 'z', 'w'][lane as usize % 4]).collect();
                let ty = match lanes.len() {
                    1 => element,
                    count => DataType::vector(element, count as u32),
                };
                Ok(Text { text: format!("{}.{letters}", value.text), ty, depth: value.depth + 1, known: value.known })
            }
            Expr::Part { value, path } => {
                let value = self.expr(value)?;
                let dynamic =
                    path.iter().any(|step| matches!(step, Access::Index(index) if !matches!(index, Expr::Literal(_))));
                // Any array in a variable can be indexed; a value may only be by constants.
                let dynamic = dynamic && (!value.is_simple() || value.known != Known::Running);
                let value = if dynamic { self.in_variable(value)? } else { value };
                let known = value.known;
                let place = self.path(value.text, value.ty, path, Vec::new(), value.depth)?;
                let leaf = place.text.clone();
                let known = match (place.nowhere, dynamic) {
                    (true, _) => Known::Always,
                    (false, true) => Known::Running,
                    (false, false) => known,
                };
                let text = self.guarded(place, leaf)?;
                Ok(Text { known, ..text })
            }
            Expr::Subgroup { op, value, argument } => self.subgroup(*op, value, argument.as_deref()),
            Expr::MatrixMultiplyAdd { .. } => refuse("WGSL has no matrix operations of subgroups"),
        }
    }

    fn literal(&mut self, value: &Literal) -> Res<Text> {
        let ty = value.data_type();
        self.ex.ty(&ty)?;
        if let Some(text) = literal::constant(value) {
            // A sign in front binds less tightly than a member access, so it takes brackets where it nests.
            let text = if text.starts_with('-') { format!("({text})") } else { text };
            return Ok(Text { text, ty, depth: 0, known: Known::Always });
        }
        let Some((bits, convert)) = literal::special(value) else { return refuse("a literal of this type") };
        let name = self.temporary();
        self.line(&format!("var {name}: u32 = {bits}u;"));
        let text = match convert {
            "f32" => format!("bitcast<f32>({name})"),
            other => format!("{other}(bitcast<f32>({name}))"),
        };
        Ok(Text::running(text, ty, 2))
    }

    /// Keeps the front end from evaluating an operation on constants that it may refuse.
    fn not_constant(&mut self, value: Text) -> Res<Text> {
        if value.known == Known::Always { self.in_variable(value) } else { Ok(value) }
    }

    fn binary(&mut self, op: BinaryOp, left: &Expr, right: &Expr) -> Res<Text> {
        let mut a = self.expr(left)?;
        let mut b = if op.is_shift() { self.shift_count(right, &a.ty)? } else { self.expr(right)? };
        if a.known == Known::Always && b.known == Known::Always {
            a = self.in_variable(a)?;
        }
        // A divisor with a component that is known to be zero is an error in WGSL.
        let safe = matches!(right, Expr::Literal(value) if value.bits() != 0);
        if matches!(op, BinaryOp::Div | BinaryOp::Rem) && Self::is_int(&b.ty) && partly_known(right, &b) && !safe {
            b = self.in_variable(b)?;
        }
        let sign = match op {
            BinaryOp::Add => "+",
            BinaryOp::Sub => "-",
            BinaryOp::Mul => "*",
            BinaryOp::Div => "/",
            BinaryOp::Rem => "%",
            BinaryOp::And => "&",
            BinaryOp::Or => "|",
            BinaryOp::Xor if Self::scalar_of(&a.ty) == DataType::Bool => "!=",
            BinaryOp::Xor => "^",
            BinaryOp::Shl => "<<",
            BinaryOp::Shr => ">>",
            BinaryOp::Eq => "==",
            BinaryOp::Ne => "!=",
            BinaryOp::Lt => "<",
            BinaryOp::Le => "<=",
            BinaryOp::Gt => ">",
            BinaryOp::Ge => ">=",
        };
        let ty = if op.is_comparison() { Self::with_element(&a.ty, DataType::Bool) } else { a.ty.clone() };
        let depth = a.depth.max(b.depth) + 1;
        if self.ex.explicit && op == BinaryOp::Ne && Self::is_float(&a.ty) {
            // What is no number is not equal to anything, which a back end may not say.
            let text = format!("(!({} == {}))", a.text, b.text);
            return Ok(Text { text, ty, depth: depth + 1, known: a.known.max(b.known) });
        }
        Ok(Text { text: format!("({} {sign} {})", a.text, b.text), ty, depth, known: a.known.max(b.known) })
    }

    /// A shift count, brought below the width where WGSL would refuse it.
    fn shift_count(&mut self, count: &Expr, shifted: &DataType) -> Res<Text> {
        let width = match Self::scalar_of(shifted) {
            DataType::U64 | DataType::I64 => 64,
            _ => 32,
        };
        if let Expr::Literal(Literal::U32(count)) = count {
            return self.literal(&Literal::U32(count % width));
        }
        let text = self.expr(count)?;
        if partly_known(count, &text) { self.in_variable(text) } else { Ok(text) }
    }

    fn select_composite(&mut self, cond: Text, yes: Text, no: Text) -> Res<Text> {
        let name = self.temporary();
        let ty = self.ex.ty(&yes.ty)?;
        self.line(&format!("var {name}: {ty} = {};", no.text));
        self.line(&format!("if {} {{ {name} = {}; }}", cond.text, yes.text));
        Ok(Text::running(name, yes.ty, 0))
    }

    fn math(&mut self, op: MathOp, args: &[Expr]) -> Res<Text> {
        let mut args = args.iter().map(|arg| self.expr(arg)).collect::<Res<Vec<_>>>()?;
        // `clamp` is printed as two operations, and the inner one sees only the first two.
        if args.iter().take(2).all(|arg| arg.known == Known::Always) {
            let first = args[0].clone();
            args[0] = self.in_variable(first)?;
        }
        if matches!(op, MathOp::ExtractBits | MathOp::InsertBits) {
            // Bits beyond the word are an error where they are known.
            let first = args.len() - 2;
            for arg in &mut args[first..] {
                if arg.known != Known::Running {
                    *arg = self.in_variable(arg.clone())?;
                }
            }
        }
        let depth = args.iter().map(|arg| arg.depth).max().unwrap_or(0) + 2;
        let ty = args[0].ty.clone();
        let texts: Vec<String> = args.iter().map(|arg| arg.text.clone()).collect();
        let known = args.iter().map(|arg| arg.known).max().unwrap_or(Known::Running);
        let call =
            |name: &str, ty: DataType| Ok(Text { text: format!("{name}({})", texts.join(", ")), ty, depth, known });
        let name = match op {
            MathOp::Abs => "abs",
            MathOp::Sign => "sign",
            MathOp::Min => "min",
            MathOp::Max => "max",
            MathOp::Clamp => {
                let text = format!("min(max({}, {}), {})", texts[0], texts[1], texts[2]);
                return Ok(Text { text, ty, depth, known });
            }
            MathOp::Floor => "floor",
            MathOp::Ceil => "ceil",
            MathOp::Round => "round",
            MathOp::Trunc => "trunc",
            MathOp::Fract => "fract",
            MathOp::Sqrt => "sqrt",
            MathOp::InverseSqrt => "inverseSqrt",
            MathOp::Exp => "exp",
            MathOp::Exp2 => "exp2",
            MathOp::Log => "log",
            MathOp::Log2 => "log2",
            MathOp::Pow => "pow",
            MathOp::Sin => "sin",
            MathOp::Cos => "cos",
            MathOp::Tan => "tan",
            MathOp::Asin => "asin",
            MathOp::Acos => "acos",
            MathOp::Atan => "atan",
            MathOp::Atan2 => "atan2",
            MathOp::Sinh => "sinh",
            MathOp::Cosh => "cosh",
            MathOp::Tanh => "tanh",
            MathOp::Asinh => "asinh",
            MathOp::Acosh => "acosh",
            MathOp::Atanh => "atanh",
            MathOp::Fma => "fma",
            MathOp::Dot => return call("dot", Self::scalar_of(&ty)),
            MathOp::All => return call("all", DataType::Bool),
            MathOp::Any => return call("any", DataType::Bool),
            MathOp::CountOneBits => "countOneBits",
            MathOp::CountLeadingZeros => "countLeadingZeros",
            MathOp::CountTrailingZeros => "countTrailingZeros",
            MathOp::ReverseBits => "reverseBits",
            MathOp::FirstLeadingBit => "firstLeadingBit",
            MathOp::FirstTrailingBit => "firstTrailingBit",
            MathOp::ExtractBits => "extractBits",
            MathOp::InsertBits => "insertBits",
            MathOp::MulHigh => {
                let helper = self.mul_high(&ty)?;
                return call(&helper, ty);
            }
        };
        call(name, ty)
    }

    /// WGSL has no multiplication that gives the high half; a function does it by 16-bit halves.
    fn mul_high(&mut self, ty: &DataType) -> Res<String> {
        let unsigned = Self::with_element(ty, DataType::U32);
        let (text, u) = (self.ex.ty(ty)?, self.ex.ty(&unsigned)?);
        let lanes = ty.as_vector().map_or(1, |(_, count)| count);
        let name = format!("vyre_mul_high_u{lanes}");
        self.ex.helpers.entry(name.clone()).or_insert_with(|| {
            format!(
                "fn {name}(a: {u}, b: {u}) -> {u} {{\n    let mask = {u}(0xffffu);\n    let half = {u}(16u);\n    \
                 let low = (a & mask) * (b & mask);\n    let left = (a >> half) * (b & mask) + (low >> half);\n    \
                 let right = (a & mask) * (b >> half) + (left & mask);\n    \
                 return (a >> half) * (b >> half) + (left >> half) + (right >> half);\n}}\n"
            )
        });
        if Self::scalar_of(ty) != DataType::I32 {
            return Ok(name);
        }
        let signed = format!("vyre_mul_high_i{lanes}");
        self.ex.helpers.entry(signed.clone()).or_insert_with(|| {
            format!(
                "fn {signed}(a: {text}, b: {text}) -> {text} {{\n    \
                 let high = bitcast<{text}>({name}(bitcast<{u}>(a), bitcast<{u}>(b)));\n    \
                 return high - select({text}(), b, a < {text}()) - select({text}(), a, b < {text}());\n}}\n"
            )
        });
        Ok(signed)
    }

    fn subgroup(&mut self, op: SubgroupOp, value: &Expr, argument: Option<&Expr>) -> Res<Text> {
        self.ex.uses_subgroups = true;
        let value = self.expr(value)?;
        let name = match op {
            SubgroupOp::Add => "subgroupAdd",
            SubgroupOp::Mul => "subgroupMul",
            SubgroupOp::Min => "subgroupMin",
            SubgroupOp::Max => "subgroupMax",
            SubgroupOp::And => "subgroupAnd",
            SubgroupOp::Or => "subgroupOr",
            SubgroupOp::Xor => "subgroupXor",
            SubgroupOp::InclusiveAdd => "subgroupInclusiveAdd",
            SubgroupOp::ExclusiveAdd => "subgroupExclusiveAdd",
            SubgroupOp::InclusiveMul => "subgroupInclusiveMul",
            SubgroupOp::ExclusiveMul => "subgroupExclusiveMul",
            SubgroupOp::All => "subgroupAll",
            SubgroupOp::Any => "subgroupAny",
            SubgroupOp::Ballot => "subgroupBallot",
            SubgroupOp::BroadcastFirst => "subgroupBroadcastFirst",
            SubgroupOp::Broadcast => "subgroupBroadcast",
            SubgroupOp::Shuffle => "subgroupShuffle",
            SubgroupOp::ShuffleXor => "subgroupShuffleXor",
            SubgroupOp::ShuffleUp => "subgroupShuffleUp",
            SubgroupOp::ShuffleDown => "subgroupShuffleDown",
        };
        let ty = match op {
            SubgroupOp::Ballot => DataType::vector(DataType::U32, 4),
            _ => value.ty.clone(),
        };
        let mut depth = value.depth;
        let text = match argument {
            Some(argument) => {
                let argument = self.expr(argument)?;
                depth = depth.max(argument.depth);
                format!("{name}({}, {})", value.text, argument.text)
            }
            None => format!("{name}({})", value.text),
        };
        Ok(self.named(Text::running(text, ty, depth + 1)))
    }

    // Places.

    /// The number of elements of a buffer.
    fn length(&mut self, name: &Name) -> Res<String> {
        let Some(buffer) = self.ex.buffers.get(name) else { return refuse(format!("no buffer `{name}`")) };
        let (text, count, ty) = (buffer.text.clone(), buffer.count.clone(), buffer.ty.clone());
        if let Some((id, member)) = self.ex.open_member(&ty) {
            return Ok(format!("arrayLength(&{text}.{})", self.ex.members[id][member as usize]));
        }
        match count {
            Count::Runtime => Ok(format!("arrayLength(&{text})")),
            Count::Fixed(count) => Ok(format!("{count}u")),
            Count::Constant(expr) => Ok(self.expr(&expr)?.text),
        }
    }

    /// An index that is inside, as text and guard. `None` when a constant is outside.
    fn index(&mut self, index: &Expr, length: &Length) -> Res<Option<(String, Option<String>, u32)>> {
        if let (Expr::Literal(value), Length::Fixed(length)) = (index, length) {
            let inside = !is_negative(value) && value.bits() < u64::from(*length);
            return Ok(inside.then(|| (format!("{}", value.bits()), None, 0)));
        }
        if let Expr::Literal(value) = index
            && (is_negative(value) || value.bits() > u64::from(u32::MAX))
        {
            return Ok(None);
        }
        let index = match index {
            // naga counts the largest indices as outside even where the length is open.
            Expr::Literal(value) if value.bits() <= i32::MAX as u64 => {
                Text::running(format!("{}u", value.bits()), DataType::U32, 0)
            }
            Expr::Literal(value) => {
                let value = self.literal(&Literal::U32(value.bits() as u32))?;
                self.in_variable(value)?
            }
            _ => self.expr(index)?,
        };
        let index = if index.known == Known::Running { index } else { self.in_variable(index)? };
        let index = self.named(index);
        let length = match length {
            Length::Fixed(length) => format!("{length}u"),
            Length::Text(text) => text.clone(),
        };
        let text = &index.text;
        Ok(Some(match index.ty {
            DataType::U32 => (text.clone(), Some(format!("({text} < {length})")), 0),
            DataType::I32 => (text.clone(), Some(format!("(u32({text}) < {length})")), 0),
            DataType::I64 => (format!("u32({text})"), Some(format!("(u64({text}) < u64({length}))")), 1),
            _ => (format!("u32({text})"), Some(format!("({text} < u64({length}))")), 1),
        }))
    }

    /// A place in a buffer.
    pub(crate) fn buffer_place(&mut self, name: &Name, index: &Expr, path: &[Access]) -> Res<PlaceText> {
        let Some(buffer) = self.ex.buffers.get(name) else { return refuse(format!("no buffer `{name}`")) };
        let (mut text, ty, is_array) = (buffer.text.clone(), buffer.ty.clone(), buffer.is_array);
        let length = match (&buffer.count, is_array) {
            (_, false) => Length::Fixed(1),
            (Count::Fixed(count), true) => Length::Fixed(*count),
            _ => Length::Text(self.length(name)?),
        };
        let mut guards = Vec::new();
        let Some((at, guard, _)) = self.index(index, &length)? else {
            return Ok(PlaceText { text, guards, ty: self.end_type(ty, path), nowhere: true, depth: 0 });
        };
        guards.extend(guard);
        if is_array {
            text = format!("{text}[{at}]");
        }
        let mut place = self.path(text, ty, path, guards, 1)?;
        if let (Some((id, member)), Some(Access::Member(first)), Some(Access::Index(tail))) =
            (self.ex.open_member(&place_type(self.ex, name)), path.first(), path.get(1))
            && *first == member
            && !place.nowhere
        {
            // The open array's own length is known only to WGSL.
            let buffer = self.ex.buffers[name].text.clone();
            let length = Length::Text(format!("arrayLength(&{buffer}.{})", self.ex.members[id][member as usize]));
            match self.index(tail, &length)? {
                Some((_, guard, _)) => place.guards.extend(guard),
                None => place.nowhere = true,
            }
        }
        Ok(place)
    }

    /// The type at the end of a path.
    fn end_type(&self, mut ty: DataType, path: &[Access]) -> DataType {
        for step in path {
            ty = match (&ty, step) {
                (DataType::Handle(id), step) => match (self.ex.def(*id), step) {
                    (TypeDef::Struct { members, .. }, Access::Member(member)) => members[*member as usize].ty.clone(),
                    (TypeDef::Array { element, .. }, _) => element.clone(),
                    _ => ty.clone(),
                },
                (other, _) => Self::scalar_of(other),
            };
        }
        ty
    }

    /// Follows a path from a text.
    pub(crate) fn path(
        &mut self,
        mut text: String,
        mut ty: DataType,
        path: &[Access],
        mut guards: Vec<String>,
        mut depth: u32,
    ) -> Res<PlaceText> {
        for (i, step) in path.iter().enumerate() {
            match step {
                Access::Member(member) => {
                    let DataType::Handle(id) = &ty else { return refuse("a member of something that is no struct") };
                    let name = self.ex.members[id.0 as usize][*member as usize].clone();
                    text = format!("{text}.{name}");
                }
                Access::Index(index) => {
                    let length = match &ty {
                        DataType::Handle(id) => match self.ex.def(*id).clone() {
                            TypeDef::Array { count: Count::Fixed(count), .. } => Length::Fixed(count),
                            // Checked by the caller, who knows the buffer.
                            TypeDef::Array { .. } => Length::Fixed(u32::MAX),
                            TypeDef::Struct { .. } => return refuse("an index into a struct"),
                        },
                        other => Length::Fixed(other.as_vector().map_or(0, |(_, count)| count)),
                    };
                    let Some((at, guard, extra)) = self.index(index, &length)? else {
                        let end = self.end_type(ty, &path[i..]);
                        return Ok(PlaceText { text, guards, ty: end, nowhere: true, depth });
                    };
                    guards.extend(guard);
                    text = format!("{text}[{at}]");
                    depth += extra;
                }
            }
            ty = self.end_type(ty, std::slice::from_ref(step));
            depth += 1;
        }
        Ok(PlaceText { text, guards, ty, nowhere: false, depth })
    }

    /// The value in a buffer, as an expression of the type it computes as.
    fn buffer_value(&mut self, name: &Name, place: &PlaceText, path: &[Access]) -> Res<String> {
        if place.nowhere {
            return Ok(String::new());
        }
        let atomics = self.ex.buffers[name].atomics.clone();
        let host = self.ex.buffers[name].kind != BufferKind::Workgroup;
        self.value_at(&place.text, &place.ty, &member_path(path), &atomics, host)
    }

    fn value_at(
        &mut self,
        text: &str,
        ty: &DataType,
        at: &MemberPath,
        atomics: &HashSet<MemberPath>,
        host: bool,
    ) -> Res<String> {
        if atomics.contains(at) {
            return Ok(format!("atomicLoad(&{text})"));
        }
        if host && Self::scalar_of(ty) == DataType::Bool {
            let zero = self.ex.ty(&Self::with_element(ty, DataType::U32))?;
            return Ok(format!("({text} != {zero}())"));
        }
        let inner = atomics.iter().any(|path| path.len() > at.len() && path.starts_with(at));
        let DataType::Handle(id) = ty else { return Ok(text.to_owned()) };
        if !inner {
            return Ok(text.to_owned());
        }
        // A value with atomics inside can only be read part by part.
        let mut parts = Vec::new();
        match self.ex.def(*id).clone() {
            TypeDef::Struct { members, .. } => {
                for (i, member) in members.iter().enumerate() {
                    let mut step = at.clone();
                    step.push(Some(i as u32));
                    let part = format!("{text}.{}", self.ex.members[id.0 as usize][i]);
                    parts.push(self.value_at(&part, &member.ty, &step, atomics, host)?);
                }
            }
            TypeDef::Array { element, count: Count::Fixed(count), .. } if count <= 64 => {
                let mut step = at.clone();
                step.push(None);
                for i in 0..count {
                    parts.push(self.value_at(&format!("{text}[{i}]"), &element, &step, atomics, host)?);
                }
            }
            TypeDef::Array { .. } => return refuse("a long array of atomics read as a whole has no WGSL form"),
        }
        Ok(format!("{}({})", self.ex.ty(ty)?, parts.join(", ")))
    }

    /// The value of a place where it exists, else zero.
    fn guarded(&mut self, place: PlaceText, leaf: String) -> Res<Text> {
        if place.nowhere {
            let text = self.zero(&place.ty)?;
            return Ok(Text { text, ty: place.ty, depth: 1, known: Known::Always });
        }
        let Some(guard) = place.guard() else {
            return Ok(Text::running(leaf, place.ty, place.depth + 1));
        };
        let zero = self.zero(&place.ty)?;
        if !matches!(place.ty, DataType::Handle(_)) {
            let text = format!("select({zero}, {leaf}, {guard})");
            return Ok(Text::running(text, place.ty, place.depth + 3));
        }
        let name = self.temporary();
        let ty = self.ex.ty(&place.ty)?;
        self.line(&format!("var {name}: {ty};"));
        self.line(&format!("if {guard} {{ {name} = {leaf}; }}"));
        Ok(Text::running(name, place.ty, 0))
    }
}

/// A length that an index is compared with.
enum Length {
    Fixed(u32),
    Text(String),
}

fn place_type(ex: &Exporter<'_>, name: &Name) -> DataType {
    ex.buffers[name].ty.clone()
}

/// The front end may know the value or a component of it.
fn partly_known(expr: &Expr, text: &Text) -> bool {
    text.known != Known::Running || matches!(expr, Expr::Construct { .. } | Expr::Swizzle { .. } | Expr::Part { .. })
}

fn is_negative(value: &Literal) -> bool {
    matches!(value, Literal::I32(value) if *value < 0) || matches!(value, Literal::I64(value) if *value < 0)
}

/// The same type, in either spelling of the u32 vectors.
pub(crate) fn same_type(a: &DataType, b: &DataType) -> bool {
    a == b || matches!((a.as_vector(), b.as_vector()), (Some(a), Some(b)) if a == b)
}
