//! Words of a structure that one instruction moves.
//!
//! The elements of an array of structures begin at multiples of 16 bytes where their size is one. A `vec3f` and the `f32` behind it are then
//! four words that one instruction moves; by themselves they are four accesses, each of which touches every line of memory that the structures of
//! a warp lie on.

use std::collections::HashMap;
use std::fmt::Write;

use vyre_foundation::kernel::{Address, Block, Element, Inst, Memory, Op, Value};

use super::neighbours::Step;
use super::{Emitter, line};

/// Words that one instruction moves at most.
const WORDS: usize = 4;
/// How many steps a load may come earlier, so that what is loaded doesn't wait in registers for long.
const FAR: usize = 48;

/// Accesses to words that begin at a multiple of 16 bytes, or of 8 where the structures do no more.
pub(super) struct Fields {
    /// Of the first word.
    address: Address,
    guard: Option<Value>,
    /// What is loaded into or stored of each word: a value and its lane.
    words: [Option<(Value, u8)>; WORDS],
    /// First word and number of words of each access.
    accesses: Vec<(usize, usize)>,
}

/// Accesses to one element of an array of structures, with nothing in between that could see or change what they touch.
struct Open<'k> {
    /// Of the first.
    address: &'k Address,
    guard: Option<Value>,
    stores: bool,
    all: Vec<One>,
}

struct One {
    inst: usize,
    value: Value,
    width: usize,
    offset: u32,
}

impl One {
    fn instructions(&self) -> usize {
        if self.width == 3 { 3 } else { 1 }
    }
}

impl Open<'_> {
    /// The step at a position is one of these.
    fn takes(&self, position: usize, address: &Address, guard: Option<Value>, stores: bool) -> bool {
        let near = stores || self.all.first().is_none_or(|first| position - first.inst <= FAR);
        let own = (self.address.memory, &self.address.terms, self.guard, self.stores);
        near && own == (address.memory, &address.terms, guard, stores)
    }

    /// A step may change what is loaded or look at what is stored. Whoever waits for others with atomics and barriers sees what was done
    /// before them.
    fn ends_at(&self, inst: &Inst) -> bool {
        match inst {
            Inst::Let(_, Op::Load { address, .. }) => self.stores && address.memory == self.address.memory,
            Inst::Let(..) => false,
            Inst::Store { address, .. } => address.memory == self.address.memory,
            _ => true,
        }
    }
}

/// Which words of the four are there, as accesses. A load may take words that nobody asked for: they lie in the same 16 bytes as some that are.
fn accesses(present: [bool; WORDS], stores: bool) -> Vec<(usize, usize)> {
    let halves = [0, 2].map(|first| (present[first], present[first + 1]));
    let all = present == [true; WORDS];
    let in_both = halves.iter().all(|&(low, high)| low || high);
    if all || (in_both && !stores) {
        return vec![(0, WORDS)];
    }
    let of_half = |(half, (low, high)): (usize, (bool, bool))| match (low, high) {
        (true, true) => Some((2 * half, 2)),
        (true, false) => Some((2 * half, 1)),
        (false, true) => Some((2 * half + 1, 1)),
        (false, false) => None,
    };
    halves.into_iter().enumerate().filter_map(of_half).collect()
}

impl Emitter<'_> {
    /// Adds the steps of a block that move several words of a structure.
    pub(super) fn fields(&self, block: &Block, steps: &mut HashMap<usize, Step>) {
        let mut open: Vec<Open<'_>> = Vec::new();
        for (i, inst) in block.insts.iter().enumerate() {
            let found = self.field_of(inst).filter(|_| !steps.contains_key(&i));
            open.retain_mut(|group| {
                let goes_on =
                    found.as_ref().is_some_and(|&(address, guard, stores, _)| group.takes(i, address, guard, stores));
                let done = !goes_on && group.ends_at(inst);
                if done {
                    self.put_together(group, steps);
                }
                !done
            });
            let Some((address, guard, stores, value)) = found else { continue };
            let one = One { inst: i, value, width: usize::from(self.width(value)), offset: address.offset };
            match open.iter_mut().find(|group| group.takes(i, address, guard, stores)) {
                Some(group) => group.all.push(one),
                None => open.push(Open { address, guard, stores, all: vec![one] }),
            }
        }
        open.iter().for_each(|group| self.put_together(group, steps));
    }

    /// An access to words of an element that begins at a multiple of 8 bytes at least.
    fn field_of<'i>(&self, inst: &'i Inst) -> Option<(&'i Address, Option<Value>, bool, Value)> {
        let (address, element, guard, stores, value) = match inst {
            Inst::Let(value, Op::Load { address, element, guard }) => (address, element, guard, false, value),
            Inst::Store { address, element, value, guard } => (address, element, guard, true, value),
            _ => return None,
        };
        let is_word = matches!(element, Element::U32 | Element::I32 | Element::F32);
        let is_early = || self.early.is_some_and(|early| early.contains(value));
        let in_array = matches!(address.memory, Memory::Buffer(_)) && !address.terms.is_empty();
        (is_word && in_array && address.offset.is_multiple_of(4) && self.aligned(address) >= 8 && !is_early())
            .then_some((address, *guard, stores, *value))
    }

    /// What elements begin at multiples of, in bytes: 16 at most, as buffers do.
    fn aligned(&self, address: &Address) -> u32 {
        let power = |(value, by): &(Value, u32)| u32::from(self.powers[value.index()]) + by.trailing_zeros();
        1 << address.terms.iter().map(power).min().unwrap_or(4).min(4)
    }

    fn put_together(&self, group: &Open<'_>, steps: &mut HashMap<usize, Step>) {
        let Open { address, guard, stores, ref all } = *group;
        let bytes = self.aligned(address);
        let mut starts: Vec<u32> = all.iter().map(|one| one.offset / bytes * bytes).collect();
        starts.sort_unstable();
        starts.dedup();
        for start in starts {
            let mut words = [None; WORDS];
            let mut taken: Vec<&One> = Vec::new();
            for one in all {
                let end = one.offset + 4 * one.width as u32;
                if end <= start || one.offset >= start + bytes {
                    continue;
                }
                let fits = start <= one.offset && end <= start + bytes;
                let first = one.offset.saturating_sub(start) as usize / 4;
                if !fits || words[first..first + one.width].iter().any(Option::is_some) {
                    // Of two stores to one word the last counts: they stay as they are.
                    if stores {
                        taken.clear();
                        break;
                    }
                    continue;
                }
                (0..one.width).for_each(|lane| words[first + lane] = Some((one.value, lane as u8)));
                taken.push(one);
            }
            let accesses = accesses(words.map(|word| word.is_some()), stores);
            let before: usize = taken.iter().map(|one| one.instructions()).sum();
            if accesses.len() >= before {
                continue;
            }
            let address = Address { offset: start, ..address.clone() };
            let fields = Fields { address, guard, words, accesses };
            let places = || taken.iter().map(|one| one.inst);
            places().for_each(|i| _ = steps.insert(i, Step::Done));
            let at = if stores { places().max() } else { places().min() }.unwrap_or_default();
            steps.insert(at, if stores { Step::StoreFields(fields) } else { Step::LoadFields(fields) });
        }
    }

    pub(super) fn load_fields(&mut self, fields: &Fields) {
        let Fields { address, guard, words, accesses } = fields;
        let mut values: Vec<Value> = words.iter().flatten().map(|(value, _)| *value).collect();
        values.dedup();
        values.iter().for_each(|value| self.define_wide(*value));
        let targets = words.map(|word| match word {
            Some((value, lane)) => self.component(value, lane),
            None => self.temp("%r"),
        });
        if guard.is_some() {
            for (target, _) in targets.iter().zip(words).filter(|(_, word)| word.is_some()) {
                line!(self, "mov.b32 {target}, {}", if target.starts_with("%f") { "0f00000000" } else { "0" });
            }
        }
        let path = self.path(address.memory);
        for (place, targets) in self.places_of(address, accesses, &targets) {
            let guard = self.guard(*guard);
            line!(self, "{guard}ld.{path}{targets}, [{place}]");
        }
    }

    pub(super) fn store_fields(&mut self, fields: &Fields) {
        let Fields { address, guard, words, accesses } = fields;
        let sources = words.map(|word| word.map_or(String::new(), |(value, lane)| self.component(value, lane)));
        for (place, sources) in self.places_of(address, accesses, &sources) {
            let guard = self.guard(*guard);
            let Some((ty, sources)) = sources.split_once(' ') else { continue };
            line!(self, "{guard}st.global{ty} [{place}], {sources}");
        }
    }

    /// The place, and the type with the registers, of each access.
    fn places_of(
        &mut self,
        address: &Address,
        accesses: &[(usize, usize)],
        registers: &[String; WORDS],
    ) -> Vec<(String, String)> {
        let at = self.address(address);
        let of = |&(first, count): &(usize, usize)| {
            let own = &registers[first..first + count];
            let place = super::memory::plus(&at, 4 * first as u32);
            match own {
                [one] => (place, format!(".b32 {one}")),
                _ => (place, format!(".v{count}.b32 {{{}}}", own.join(", "))),
            }
        };
        accesses.iter().map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use vyre_foundation::kernel::{Options, lower};
    use vyre_wgsl::{ImportOptions, import};

    use super::accesses;
    use crate::ptx::{Target, emit, lowering};

    fn text(fields: &str, body: &str) -> String {
        let source = format!(
            "struct One {{ {fields} }}
             @group(0) @binding(0) var<storage, read> before: array<One>;
             @group(0) @binding(1) var<storage, read_write> after: array<One>;
             @group(0) @binding(2) var<storage, read_write> other: array<f32>;
             @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3u) {{
                 if (id.x >= arrayLength(&before)) {{ return; }}
                 {body}
             }}"
        );
        let program = import(&source, &ImportOptions::default()).expect("imports");
        let kernel = lower(&program.validate().expect("valid"), &lowering(Options::default())).expect("lowers");
        emit(&kernel, Target { sm: 90, interruptible: false }).expect("text").text
    }

    /// Accesses of the entry for one workgroup of four words, of two and of one, loads before stores.
    fn counted(text: &str) -> [[usize; 3]; 2] {
        let text = text.split("vyre_kernel_together").next().unwrap_or_default();
        ["ld.global", "st.global"].map(|what| {
            let of = |kind: &str| {
                let is = |line: &&str| line.contains(what) && line.contains(kind) && !line.contains("relaxed");
                text.lines().filter(is).count()
            };
            let (four, two) = (of(".v4."), of(".v2."));
            [four, two, of("") - four - two]
        })
    }

    /// The same of the entry for several workgroups.
    fn counted_together(text: &str) -> Option<[[usize; 3]; 2]> {
        text.split_once("vyre_kernel_together").map(|(_, together)| counted(together))
    }

    const COPY: &str = "var p = before[id.x]; p.b += 1.0; after[id.x] = p;";

    #[test]
    fn words_of_a_structure_move_at_once() {
        // A vector of three and the number behind it; other types, too.
        let plain = text("a: vec3f, b: f32", COPY);
        assert_eq!(counted(&plain), [[1, 0, 0], [1, 0, 0]], "{plain}");
        assert_eq!(counted_together(&plain), Some([[4, 0, 0], [4, 0, 0]]), "{plain}");
        assert_eq!(counted(&text("a: vec3u, b: f32, c: vec2f, d: u32, e: i32", COPY)), [[2, 0, 0], [2, 0, 0]]);
        assert_eq!(counted(&text("a: f32, b: f32", COPY)), [[0, 1, 0], [0, 1, 0]]);
        assert_eq!(counted(&text("a: f32, b: f32, c: f32, d: f32", COPY)), [[1, 0, 0], [1, 0, 0]]);
        // Nobody has to be asked about what is only read; what nobody stores stays.
        assert_eq!(counted(&text("a: vec3f, b: vec3f", "after[id.x].a = before[id.x].b;")), [[1, 0, 0], [0, 1, 1]]);
        // Structures of three words begin anywhere.
        assert_eq!(counted(&text("a: f32, b: f32, c: f32", COPY)), [[0, 0, 3], [0, 0, 3]]);
    }

    #[test]
    fn what_others_may_see_stays_in_order() {
        // A store between loads of the same memory, and a look between stores.
        let between = "let a = after[id.x].a; after[id.x ^ 1u].b = 2.0; other[id.x] = a + after[id.x].b;";
        assert_eq!(counted(&text("a: f32, b: f32", between)), [[0, 0, 2], [0, 0, 2]]);
        let look = "after[id.x].a = 1.0; other[id.x] = after[id.x ^ 1u].b; after[id.x].b = 2.0;";
        assert_eq!(counted(&text("a: f32, b: f32", look)), [[0, 0, 1], [0, 0, 3]]);
        let twice = "after[id.x].a = 1.0; after[id.x ^ 1u].a = 4.0; after[id.x].b = 2.0;";
        assert_eq!(counted(&text("a: f32, b: f32", twice)), [[0, 0, 0], [0, 0, 3]]);
    }

    #[test]
    fn words_that_are_there_say_what_is_accessed() {
        let of = |words: u8, stores| accesses([0, 1, 2, 3].map(|word| words >> word & 1 == 1), stores);
        assert_eq!(of(0b0111, false), [(0, 4)]);
        assert_eq!(of(0b0111, true), [(0, 2), (2, 1)]);
        assert_eq!(of(0b1100, true), [(2, 2)]);
        assert_eq!(of(0b1001, false), [(0, 4)]);
        assert_eq!(of(0b1001, true), [(0, 1), (3, 1)]);
        assert_eq!(of(0b0010, false), [(1, 1)]);
    }
}
