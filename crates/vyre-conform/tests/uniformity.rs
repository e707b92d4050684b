//! Programs full of branches, loops and barriers: those that validation accepts never part at a barrier when they run.

use vyre_foundation::ir::*;
use vyre_reference::RunOptions;
use vyre_spec::codes;

/// SplitMix64.
struct Random(u64);

/// What the statements of a list may use.
#[derive(Clone, Default)]
struct Around {
    variables: Vec<Name>,
    values: Vec<Name>,
    in_loop: bool,
    in_function: bool,
}

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) % n as u64) as usize
    }

    fn small(&mut self) -> Expr {
        Expr::u32(self.below(4) as u32)
    }

    fn name(&mut self) -> Name {
        format!("n{}", self.below(1 << 30)).into()
    }

    fn value(&mut self, around: &Around) -> Expr {
        let leaf = match self.below(10) {
            0 => self.small(),
            1 => Expr::local_id(0),
            2 => Expr::workgroup_id(0),
            3 => Expr::load("same", 0u32),
            4 => Expr::load("fixed", self.small()),
            5 => Expr::load("shared", self.small()),
            6 => Expr::load("fixed", Expr::local_id(0)),
            _ if around.values.is_empty() => self.small(),
            _ => Expr::var(&around.values[self.below(around.values.len())]),
        };
        if self.below(3) > 0 { leaf } else { leaf + self.value(around) }
    }

    fn condition(&mut self, around: &Around) -> Expr {
        let value = self.value(around) & 3u32;
        if self.below(2) == 0 { value.eq(self.small()) } else { value.lt(self.small()) }
    }

    /// A few statements; branches and loops only where there is depth left.
    fn list(&mut self, mut around: Around, depth: u32) -> Vec<Node> {
        let mut nodes = Vec::new();
        for _ in 0..1 + self.below(4) {
            match self.below(if depth == 0 { 7 } else { 12 }) {
                0 | 1 => nodes.push(Node::barrier()),
                2 => {
                    let name = self.name();
                    nodes.push(Node::var(&name, DataType::U32, self.value(&around)));
                    around.variables.push(name.clone());
                    around.values.push(name);
                }
                3 if !around.variables.is_empty() => {
                    let at = self.below(around.variables.len());
                    nodes.push(Node::assign(&around.variables[at], self.value(&around)));
                }
                4 if around.in_loop => {
                    let jump = if self.below(2) == 0 { Node::Break } else { Node::Continue };
                    nodes.push(Node::if_then(self.condition(&around), vec![jump]));
                }
                5 if self.below(2) == 0 => {
                    let result = if around.in_function { Some(self.value(&around)) } else { None };
                    nodes.push(Node::if_then(self.condition(&around), vec![Node::Return(result)]));
                }
                5 if !around.in_function => {
                    let result = self.name();
                    let args = vec![self.value(&around)];
                    nodes.push(Node::Call { function: "f".into(), args, result: Some(result.clone()) });
                    around.values.push(result);
                }
                6 => nodes.push(Node::store("shared", self.small(), self.value(&around))),
                7 | 8 => {
                    let cond = self.condition(&around);
                    let then = self.list(around.clone(), depth - 1);
                    nodes.push(Node::if_else(cond, then, self.list(around.clone(), depth - 1)));
                }
                9 => {
                    let case = |values, default, body| Case { values, default, body };
                    let first = case(vec![Literal::U32(1)], false, self.list(around.clone(), depth - 1));
                    let second = case(vec![], true, self.list(around.clone(), depth - 1));
                    nodes.push(Node::Switch { selector: self.value(&around), cases: vec![first, second] });
                }
                10 => {
                    let mut inner = around.clone();
                    inner.in_loop = true;
                    let var = self.name();
                    inner.values.push(var.clone());
                    let (from, to) = (self.value(&around) & 1u32, self.value(&around) & 3u32);
                    nodes.push(Node::For { var, from, to, step: 1, body: self.list(inner, depth - 1) });
                }
                11 => {
                    let mut inner = around.clone();
                    inner.in_loop = true;
                    let rounds = self.name();
                    inner.values.push(rounds.clone());
                    nodes.push(Node::var_zero(&rounds, DataType::U32));
                    let mut body = vec![
                        Node::assign(&rounds, Expr::var(&rounds) + 1u32),
                        Node::if_then(Expr::var(&rounds).gt(4u32), vec![Node::Break]),
                    ];
                    body.extend(self.list(inner, depth - 1));
                    let continuing = if self.below(2) == 0 { vec![Node::barrier()] } else { vec![] };
                    let break_if = if self.below(2) == 0 { Some(self.condition(&around)) } else { None };
                    nodes.push(Node::Loop { body, continuing, break_if });
                }
                _ => {}
            }
        }
        nodes
    }

    fn program(&mut self) -> Program {
        let around = Around { values: vec!["p".into()], in_function: true, ..Around::default() };
        let mut body = self.list(around.clone(), 1);
        body.push(Node::Return(Some(self.value(&around))));
        let params = vec![Param { name: "p".into(), ty: DataType::U32 }];
        let buffers = vec![
            BufferDecl::read_write("shared", 0, DataType::U32).with_count(4),
            BufferDecl::read("fixed", 1, DataType::U32).with_count(4),
            BufferDecl::uniform("same", 2, DataType::U32),
        ];
        Program::wrapped(buffers, [4, 1, 1], self.list(Around::default(), 3)).with_functions(vec![Function {
            name: "f".into(),
            params,
            result: Some(DataType::U32),
            body,
        }])
    }
}

#[test]
fn accepted_programs_meet_at_their_barriers() {
    let seeds = std::env::var("VYRE_RANDOM").ok().and_then(|text| text.parse().ok()).unwrap_or(2000);
    let (mut accepted, mut refused) = (0, 0);
    for seed in 0..seeds {
        let mut random = Random(seed);
        let program = random.program();
        let valid = match program.validate() {
            Ok(valid) => valid,
            Err(problems) => {
                assert!(
                    problems.iter().all(|problem| problem.code == &codes::ir::IR_UNIFORMITY),
                    "seed {seed}: {problems:?}"
                );
                refused += 1;
                continue;
            }
        };
        accepted += 1;
        for trial in 0..3u8 {
            let fixed: Vec<u8> = (0..4).flat_map(|_| [random.below(4) as u8, 0, 0, 0]).collect();
            let inputs: [&[u8]; 3] = [&[trial; 16], &fixed, &[trial, 0, 0, 0]];
            let options = RunOptions { budget: 300_000, grid: Some([2, 1, 1]), ..RunOptions::default() };
            match vyre_reference::run(&valid, &inputs, &options) {
                Ok(_) => {}
                Err(problem) if problem.code == &codes::reference::BUDGET => {}
                Err(problem) => panic!("seed {seed}: {problem}\n{}", vyre_foundation::text::print(&program)),
            }
        }
    }
    assert!(accepted > seeds / 20 && refused > seeds / 20, "{accepted} accepted, {refused} refused");
}
