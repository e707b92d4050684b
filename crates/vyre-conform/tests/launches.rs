//! Random kernels of global ids: the domain that is found is all that does anything, and shapes that are allowed change nothing.

use vyre_foundation::ValidProgram;
use vyre_foundation::ir::*;
use vyre_foundation::launch::{self, LaunchRequest, Shapes};
use vyre_foundation::text;
use vyre_reference::RunOptions;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) % n as u64) as usize
    }

    fn chance(&mut self, of: usize) -> bool {
        self.below(of) == 0
    }

    /// A number that is known at launch.
    fn known(&mut self) -> Expr {
        match self.below(6) {
            0 => Expr::u32(1 + self.below(9) as u32),
            1 => Expr::len("a"),
            2 => Expr::len("b"),
            3 => Expr::len("b") - Expr::u32(1),
            _ => Expr::load("sizes", self.below(3) as u32),
        }
    }

    fn id(&mut self, axes: u8) -> Expr {
        Expr::global_id(self.below(usize::from(axes)) as u8)
    }

    /// An index that is made of ids, mostly in ways that people use.
    fn index(&mut self, axes: u8) -> Expr {
        let width = || Expr::load("sizes", 0u32);
        match self.below(12) {
            0 => self.id(axes) * Expr::u32(1 + self.below(3) as u32) + Expr::u32(self.below(3) as u32),
            1 => Expr::len("b") - Expr::u32(1) - self.id(axes),
            2 => self.id(axes) / Expr::u32(1 + self.below(3) as u32),
            3 => Expr::load("a", self.id(axes)),
            4 => Expr::u32(self.below(4) as u32),
            _ => match axes {
                1 => Expr::global_id(0),
                2 => Expr::global_id(1) * width() + Expr::global_id(0),
                _ => {
                    (Expr::global_id(2) * Expr::load("sizes", 1u32) + Expr::global_id(1)) * width() + Expr::global_id(0)
                }
            },
        }
    }

    fn condition(&mut self, axes: u8, depth: u32) -> Expr {
        match self.below(if depth == 0 { 4 } else { 7 }) {
            0 => self.id(axes).ge(self.known()),
            1 => self.id(axes).eq(Expr::u32(self.below(3) as u32)),
            2 | 3 => self.id(axes).lt(self.known()),
            4 => self.condition(axes, depth - 1) & self.condition(axes, depth - 1),
            5 => self.condition(axes, depth - 1) | self.condition(axes, depth - 1),
            _ => !self.condition(axes, depth - 1),
        }
    }

    fn value(&mut self, axes: u8) -> Expr {
        match self.below(5) {
            0 => self.id(axes) + Expr::u32(7),
            1 => Expr::load("a", self.index(axes)) * Expr::u32(3),
            2 => Expr::load("b", self.index(axes)) + Expr::u32(1),
            3 => Expr::u32(5),
            _ => self.id(axes) * Expr::u32(10) + Expr::load("a", self.id(axes)),
        }
    }

    fn list(&mut self, axes: u8, depth: u32) -> Vec<Node> {
        let mut nodes = Vec::new();
        for _ in 0..1 + self.below(2) {
            match self.below(if depth == 0 { 4 } else { 8 }) {
                0 if self.chance(2) => {
                    nodes.push(Node::atomic(AtomicOp::Add, "c", self.index(axes), self.value(axes)));
                }
                0..=3 => nodes.push(Node::store("b", self.index(axes), self.value(axes))),
                4 | 5 => nodes.push(Node::if_then(self.condition(axes, 1), self.list(axes, depth - 1))),
                6 => nodes.push(Node::if_then(self.condition(axes, 1), vec![Node::Return(None)])),
                _ => {
                    let to = self.known() & Expr::u32(3);
                    nodes.push(Node::for_range(format!("i{depth}"), 0u32, to, self.list(axes, depth - 1)));
                }
            }
        }
        nodes
    }

    /// A kernel, most often with the guard in front that most have.
    fn kernel(&mut self) -> (ValidProgram, Vec<Vec<u8>>) {
        let axes = 1 + self.below(3) as u8;
        let mut body = Vec::new();
        if !self.chance(2) {
            let limits = [Expr::load("sizes", 0u32), Expr::load("sizes", 1u32), Expr::load("sizes", 2u32)];
            for (axis, limit) in limits.into_iter().take(axes.into()).enumerate() {
                let outside = Expr::global_id(axis as u8).ge(limit);
                body.push(Node::if_then(outside, vec![Node::Return(None)]));
            }
        }
        body.extend(self.list(axes, 2));
        let buffers = vec![
            BufferDecl::read("a", 0, DataType::U32),
            BufferDecl::read_write("b", 1, DataType::U32),
            BufferDecl::read_write("c", 2, DataType::U32),
            BufferDecl::uniform("sizes", 3, DataType::U32).with_count(4),
        ];
        let size = [[4, 1, 1], [2, 2, 1], [2, 2, 2]][usize::from(axes) - 1];
        let program = Program::wrapped(buffers, size, body).validate().expect("valid");
        let words = |words: Vec<u32>| words.into_iter().flat_map(u32::to_le_bytes).collect::<Vec<u8>>();
        let mut some = |most: usize| (0..1 + self.below(most)).map(|i| i as u32 * 7 % 5).collect::<Vec<u32>>();
        let (a, b, c) = (some(40), some(40), some(8));
        let sizes = [1 + self.below(6) as u32, 1 + self.below(5) as u32, 1 + self.below(3) as u32, 0];
        (program, vec![words(a), words(b), words(c), words(sizes.to_vec())])
    }
}

fn run(program: &ValidProgram, inputs: &[Vec<u8>], options: RunOptions) -> Vec<Vec<u8>> {
    let inputs: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
    vyre_reference::run(program, &inputs, &options).expect("runs")
}

#[test]
fn larger_grids_and_allowed_shapes_give_the_same() {
    let (mut proven, mut free, mut same) = (0, 0, 0);
    for seed in 0..600 {
        let (program, inputs) = Random(seed).kernel();
        let bytes: Vec<u64> = inputs.iter().map(|input| input.len() as u64).collect();
        let contents: Vec<_> = inputs.iter().map(|input| Some(input.as_slice())).collect();
        let request = LaunchRequest { input_bytes: &bytes, contents: &contents, ..LaunchRequest::default() };
        // What does not follow is asked for, and a reversed index of an empty domain asks for too much.
        let Ok(plan) = launch::plan(&program, &request) else { continue };
        if plan.domain.iter().product::<u64>() > 4096 {
            continue;
        }
        let expected = run(&program, &inputs, RunOptions::default());
        let told = || format!("seed {seed}: {:?} from {}\n{}", plan.domain, plan.origin, text::print(&program));
        let freedom = launch::freedom(&program, None).expect("an answer");
        if plan.proven {
            proven += 1;
            let axes = freedom.axes;
            let larger = std::array::from_fn(|axis| plan.grid[axis] + if axes[axis] { 3 } else { 0 });
            let found = run(&program, &inputs, RunOptions { grid: Some(larger), ..RunOptions::default() });
            assert!(found == expected, "a larger grid\n{}", told());
        }
        for shape in [[1, 1, 1], [2, 1, 1], [8, 1, 1], [1, 4, 1], [4, 2, 1], [3, 5, 1], [2, 2, 2], [1, 2, 4], [7, 1, 1]]
        {
            if shape == plan.workgroup_size || !freedom.allows(&plan, shape) {
                continue;
            }
            *(if freedom.shapes == Shapes::Any { &mut free } else { &mut same }) += 1;
            let found = run(&program, &inputs, RunOptions { workgroup: Some(shape), ..RunOptions::default() });
            assert!(found == expected, "workgroups of {shape:?}\n{}", told());
        }
    }
    println!("{proven} proven, {free} shapes of free kernels, {same} with the same invocations");
    assert!(proven > 100 && free > 300 && same > 0, "{proven} proven, {free} free, {same} the same");
}
