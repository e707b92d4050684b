//! Operations across a warp. They stand where all invocations of a subgroup come together, so every lane that exists takes part.

use std::fmt::Write;

use vyre_foundation::ir::{MatrixKind, SubgroupOp};
use vyre_foundation::kernel::{Binary, MatrixMultiplyAdd, Scalar, Value};
use vyre_spec::{Diagnostic, codes};

use super::{Emitter, TENSOR_CORES, bits_suffix, line, malformed};

impl Emitter<'_> {
    /// The mask of the lanes that exist and their number; the last warp of a workgroup may not be full.
    fn warp(&mut self) -> (String, String) {
        let (mask, count) = (self.temp("%r"), self.temp("%r"));
        if self.invocations().is_multiple_of(32) {
            line!(self, "mov.u32 {mask}, 0xffffffff");
            line!(self, "mov.u32 {count}, 32");
            return (mask, count);
        }
        let (first, shift) = (self.temp("%r"), self.temp("%r"));
        self.local_index(&first);
        line!(self, "and.b32 {first}, {first}, 0xffffffe0");
        line!(self, "sub.u32 {count}, {}, {first}", self.invocations());
        line!(self, "min.u32 {count}, {count}, 32");
        line!(self, "sub.u32 {shift}, 32, {count}");
        line!(self, "mov.u32 {mask}, 0xffffffff");
        line!(self, "shr.u32 {mask}, {mask}, {shift}");
        (mask, count)
    }

    fn lane(&mut self) -> String {
        let lane = self.temp("%r");
        line!(self, "mov.u32 {lane}, %laneid");
        lane
    }

    /// All lanes have the same value, so that none has to be fetched. ptxas must not be left to find that out of a constant: it does so after it
    /// has put a difference and a maximum into one instruction, and then turns `1 - x` into `x - 1` on sm_90.
    fn is_alike(&self, value: Value) -> bool {
        self.kernel.values[value.index()].uniform
    }

    /// The value of another lane, whatever the type.
    fn shuffle(&mut self, scalar: Scalar, into: &str, from: &str, lane: &str, mask: &str) {
        let word = |emitter: &mut Self, into: &str, from: &str| {
            line!(emitter, "shfl.sync.idx.b32 {into}, {from}, {lane}, 31, {mask}");
        };
        match scalar {
            Scalar::U32 | Scalar::I32 => word(self, into, from),
            Scalar::F32 => {
                let (a, b) = (self.temp("%r"), self.temp("%r"));
                line!(self, "mov.b32 {a}, {from}");
                word(self, &b, &a);
                line!(self, "mov.b32 {into}, {b}");
            }
            Scalar::F16 => {
                let (a, b) = (self.temp("%r"), self.temp("%r"));
                line!(self, "cvt.u32.u16 {a}, {from}");
                word(self, &b, &a);
                line!(self, "cvt.u16.u32 {into}, {b}");
            }
            Scalar::Bool => {
                let (a, b) = (self.temp("%r"), self.temp("%r"));
                line!(self, "selp.u32 {a}, 1, 0, {from}");
                word(self, &b, &a);
                line!(self, "setp.ne.u32 {into}, {b}, 0");
            }
            Scalar::U64 | Scalar::I64 | Scalar::F64 => {
                let (low, high, low2, high2) = (self.temp("%r"), self.temp("%r"), self.temp("%r"), self.temp("%r"));
                line!(self, "mov.b64 {{{low}, {high}}}, {from}");
                word(self, &low2, &low);
                word(self, &high2, &high);
                line!(self, "mov.b64 {into}, {{{low2}, {high2}}}");
            }
        }
    }

    pub(super) fn subgroup(
        &mut self,
        value: Value,
        op: SubgroupOp,
        operand: Value,
        argument: Option<Value>,
    ) -> Result<(), Diagnostic> {
        let scalar = self.scalar(operand);
        let from = self.reg(operand);
        let (mask, count) = self.warp();
        match op {
            SubgroupOp::All | SubgroupOp::Any => {
                let into = self.reg(value);
                let name = if op == SubgroupOp::All { "all" } else { "any" };
                line!(self, "vote.sync.{name}.pred {into}, {from}, {mask}");
            }
            SubgroupOp::Ballot => {
                let first = self.component(value, 0);
                line!(self, "vote.sync.ballot.b32 {first}, {from}, {mask}");
                for lane in 1..4 {
                    let rest = self.component(value, lane);
                    line!(self, "mov.u32 {rest}, 0");
                }
            }
            SubgroupOp::BroadcastFirst => {
                let into = self.reg(value);
                match self.is_alike(operand) {
                    true => line!(self, "mov.{} {into}, {from}", bits_suffix(scalar)),
                    false => self.shuffle(scalar, &into, &from, "0", &mask),
                }
            }
            SubgroupOp::Broadcast
            | SubgroupOp::Shuffle
            | SubgroupOp::ShuffleXor
            | SubgroupOp::ShuffleUp
            | SubgroupOp::ShuffleDown => {
                let argument = argument.ok_or_else(|| malformed("a shuffle lacks its lane"))?;
                let source = self.lane_of_shuffle(op, argument);
                let inside = self.temp("%p");
                line!(self, "setp.lt.u32 {inside}, {source}, {count}");
                let mut moved = from;
                if !self.is_alike(operand) {
                    let from = std::mem::replace(&mut moved, self.temp_of(scalar));
                    self.shuffle(scalar, &moved, &from, &source, &mask);
                }
                let into = self.reg(value);
                self.select_or_zero(scalar, &into, &inside, &moved);
            }
            _ => self.combine_lanes(value, op, operand)?,
        }
        Ok(())
    }

    /// The lane that a shuffle takes its value from; outside of the subgroup where there is none.
    fn lane_of_shuffle(&mut self, op: SubgroupOp, argument: Value) -> String {
        let argument = self.reg(argument);
        let own = self.lane();
        let source = self.temp("%r");
        match op {
            SubgroupOp::ShuffleXor => line!(self, "xor.b32 {source}, {own}, {argument}"),
            // A lane below zero wraps and so is outside; a sum that wraps is made to be.
            SubgroupOp::ShuffleUp => {
                let under = self.temp("%p");
                line!(self, "sub.u32 {source}, {own}, {argument}");
                line!(self, "setp.lt.u32 {under}, {own}, {argument}");
                line!(self, "selp.u32 {source}, 0xffffffff, {source}, {under}");
            }
            SubgroupOp::ShuffleDown => {
                let step = self.temp("%r");
                line!(self, "min.u32 {step}, {argument}, 64");
                line!(self, "add.u32 {source}, {own}, {step}");
            }
            _ => line!(self, "mov.u32 {source}, {argument}"),
        }
        source
    }

    /// A sum, product, least … over the lanes, or its running values.
    fn combine_lanes(&mut self, value: Value, op: SubgroupOp, operand: Value) -> Result<(), Diagnostic> {
        let scalar = self.scalar(operand);
        let from = self.reg(operand);
        let (mask, count) = self.warp();
        let binary = match op {
            SubgroupOp::Add | SubgroupOp::InclusiveAdd | SubgroupOp::ExclusiveAdd => Binary::Add,
            SubgroupOp::Mul | SubgroupOp::InclusiveMul | SubgroupOp::ExclusiveMul => Binary::Mul,
            SubgroupOp::Min => Binary::Min,
            SubgroupOp::Max => Binary::Max,
            SubgroupOp::And => Binary::And,
            SubgroupOp::Or => Binary::Or,
            SubgroupOp::Xor => Binary::Xor,
            _ => return Err(malformed("an unknown subgroup operation")),
        };
        let own = self.lane();
        let running = if scalar.is_float() {
            self.scan_in_order(binary, scalar, from, &own, &mask, self.is_alike(operand))?
        } else if let Some(name) = self.reduce_instruction(op, scalar) {
            let into = self.reg(value);
            line!(self, "redux.sync.{name} {into}, {from}, {mask}");
            return Ok(());
        } else {
            self.scan_by_doubling(binary, scalar, from, &own, &mask, self.is_alike(operand))?
        };
        let into = self.reg(value);
        match op {
            SubgroupOp::InclusiveAdd | SubgroupOp::InclusiveMul => {
                line!(self, "mov.{} {into}, {running}", bits_suffix(scalar));
            }
            SubgroupOp::ExclusiveAdd | SubgroupOp::ExclusiveMul => {
                let (source, has, moved) = (self.temp("%r"), self.temp("%p"), self.temp_of(scalar));
                line!(self, "sub.u32 {source}, {own}, 1");
                line!(self, "setp.ne.u32 {has}, {own}, 0");
                self.shuffle(scalar, &moved, &running, &source, &mask);
                if op == SubgroupOp::ExclusiveAdd {
                    self.select_or_zero(scalar, &into, &has, &moved);
                } else {
                    let one = self.temp_of(scalar);
                    let constant = match scalar {
                        Scalar::F32 => "0f3F800000",
                        Scalar::F64 => "0d3FF0000000000000",
                        Scalar::F16 => "0x3C00",
                        _ => "1",
                    };
                    line!(self, "mov.{} {one}, {constant}", bits_suffix(scalar));
                    self.select(scalar, &into, &has, &moved, &one);
                }
            }
            _ => {
                let last = self.temp("%r");
                line!(self, "sub.u32 {last}, {count}, 1");
                self.shuffle(scalar, &into, &running, &last, &mask);
            }
        }
        Ok(())
    }

    /// One instruction of the tensor cores.
    pub(super) fn matrix(&mut self, value: Value, matrix: &MatrixMultiplyAdd) -> Result<(), Diagnostic> {
        if self.target.sm < TENSOR_CORES {
            return Err(Diagnostic::new(
                &codes::backend::UNSUPPORTED_FEATURE,
                format!("compute capability {}.{} has no matrix fragments", self.target.sm / 10, self.target.sm % 10),
            ));
        }
        let (shape, ty) = match matrix.kind {
            MatrixKind::F16 => ("m16n8k16", "f16"),
            MatrixKind::Bf16 => ("m16n8k16", "bf16"),
            MatrixKind::Tf32 => ("m16n8k8", "tf32"),
        };
        let list = |emitter: &Self, values: &[Value]| {
            let registers: Vec<String> = values.iter().map(|&value| emitter.reg(value)).collect();
            registers.join(", ")
        };
        let (a, b, c) = (list(self, &matrix.a), list(self, &matrix.b), list(self, &matrix.c));
        let into: Vec<String> = (0..4).map(|lane| self.component(value, lane)).collect();
        let into = into.join(", ");
        line!(self, "mma.sync.aligned.{shape}.row.col.f32.{ty}.{ty}.f32 {{{into}}}, {{{a}}}, {{{b}}}, {{{c}}}");
        Ok(())
    }

    /// Newer devices reduce 32-bit integers in one instruction.
    fn reduce_instruction(&self, op: SubgroupOp, scalar: Scalar) -> Option<String> {
        if self.target.sm < 80 || !matches!(scalar, Scalar::U32 | Scalar::I32) {
            return None;
        }
        let ty = if scalar == Scalar::U32 { "u32" } else { "s32" };
        Some(match op {
            SubgroupOp::Add => format!("add.{ty}"),
            SubgroupOp::Min => format!("min.{ty}"),
            SubgroupOp::Max => format!("max.{ty}"),
            SubgroupOp::And => "and.b32".to_owned(),
            SubgroupOp::Or => "or.b32".to_owned(),
            SubgroupOp::Xor => "xor.b32".to_owned(),
            _ => return None,
        })
    }

    /// Each lane gets the combination of all lanes up to its own, in five rounds. For operations whose order does not matter.
    fn scan_by_doubling(
        &mut self,
        binary: Binary,
        scalar: Scalar,
        from: String,
        own: &str,
        mask: &str,
        is_alike: bool,
    ) -> Result<String, Diagnostic> {
        let mut running = from;
        for distance in [1, 2, 4, 8, 16] {
            let (has, sum) = (self.temp("%p"), self.temp_of(scalar));
            line!(self, "setp.ge.u32 {has}, {own}, {distance}");
            let mut moved = running.clone();
            // From the second round on lanes have the sums of different numbers of lanes.
            if !is_alike || distance > 1 {
                let source = self.temp("%r");
                moved = self.temp_of(scalar);
                line!(self, "sub.u32 {source}, {own}, {distance}");
                self.shuffle(scalar, &moved, &running, &source, mask);
            }
            self.binary(binary, scalar, &sum, &moved, &running)?;
            let next = self.temp_of(scalar);
            self.select(scalar, &next, &has, &sum, &running);
            running = next;
        }
        Ok(running)
    }

    /// The same from the lowest lane up, as the meaning of a program says: the order decides how floats round.
    fn scan_in_order(
        &mut self,
        binary: Binary,
        scalar: Scalar,
        from: String,
        own: &str,
        mask: &str,
        is_alike: bool,
    ) -> Result<String, Diagnostic> {
        let fetch = |emitter: &mut Self, lane: &str| {
            if is_alike {
                return from.clone();
            }
            let moved = emitter.temp_of(scalar);
            emitter.shuffle(scalar, &moved, &from, lane, mask);
            moved
        };
        let mut running = fetch(self, "0");
        for lane in 1..self.invocations().min(32) {
            let moved = fetch(self, &lane.to_string());
            let (sum, next, has) = (self.temp_of(scalar), self.temp_of(scalar), self.temp("%p"));
            self.binary(binary, scalar, &sum, &running, &moved)?;
            line!(self, "setp.ge.u32 {has}, {own}, {lane}");
            self.select(scalar, &next, &has, &sum, &running);
            running = next;
        }
        Ok(running)
    }

    fn select_or_zero(&mut self, scalar: Scalar, into: &str, cond: &str, yes: &str) {
        let zero = self.temp_of(scalar);
        let constant = match scalar {
            Scalar::F32 => "0f00000000",
            Scalar::F64 => "0d0000000000000000",
            _ => "0",
        };
        line!(self, "mov.{} {zero}, {constant}", bits_suffix(scalar));
        self.select(scalar, into, cond, yes, &zero);
    }
}
