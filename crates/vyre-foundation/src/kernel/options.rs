use crate::ir::Specialization;

/// About as many registers as a GPU has for an invocation.
const GPU_REGISTERS: u32 = 256;

/// What a kernel is made for.
#[derive(Clone, Debug)]
pub struct Options {
    /// Values of specialization constants; the others keep their defaults.
    pub specialization: Specialization,
    /// Replaces the program's workgroup size.
    pub workgroup_size: Option<[u32; 3]>,
    /// What the optimiser does.
    pub passes: Passes,
    /// Expands functions such as `exp` and `sin` into basic operations.
    pub expand_math: bool,
    /// What functions become in fast arithmetic, where they are expanded.
    pub approximations: Approximations,
    /// Who converts stored types.
    pub narrow: Narrow,
    /// How many scalars of private arrays become values: about as many as there are registers.
    pub array_values: u32,
    /// The same where no loop that stays has to carry them.
    pub straight_array_values: u32,
    /// Accesses of a loop are tested once before it, and the loop is there with and without guards.
    pub one_test: bool,
    /// How far loops with a known number of rounds are unrolled.
    pub unrolling: Unrolling,
    /// How many rounds of a loop over memory are taken at once; one leaves loops as they are.
    pub rounds_together: u32,
    /// Loops with barriers load what the next round needs while this one computes, for devices that wait for what they load where it is
    /// first used.
    pub round_ahead: bool,
    /// How many neighbouring invocations along each axis one does. The workgroup size counts all of them, and what a thread of the
    /// kernel does is that many times as much. Only kernels whose launch may change without changing results are merged.
    pub merged: [u32; 3],
    /// Loops whose invocations start side by side count once for the workgroup, for devices whose lanes share a counter.
    pub strides_together: bool,
    /// Rounds of loops with barriers in which invocations work the further apart the later the round is are written out, for devices that move
    /// words whose distance is known at once.
    pub trees_written_out: bool,
    /// All rounds of short searches are done and the first hit is selected, for devices whose lanes leave loops one by one while others go on.
    pub searches_written_out: bool,
    /// Invocations that go over a tile of workgroup memory by one number go over its rows, for devices that take so many neighbours along a row
    /// of the workgroup as one vector.
    pub rows_of_tiles: Option<u32>,
    /// Columns of a tile that an invocation has side by side are dealt out to its neighbours one by one while a loop goes on, for devices that take
    /// so many neighbours as one vector.
    pub words_dealt: Option<u32>,
    /// Vectors of four that are worked on component by component have an invocation for each component (`Kernel::parts`), for devices that take so
    /// many neighbours as one vector. Launches are as small as with `small_grids`.
    pub components_apart: Option<u32>,
    /// What a counted loop adds to a number in each round is a product of its counter, for devices that test bounds once for all rounds.
    pub made_of_counters: bool,
    /// Numbers that were taken apart by quotients and remainders and are put together again are what they were, for devices that take neighbours as
    /// one vector.
    pub rejoined: bool,
    /// Places of invocations in the grid, and bytes of buffers, are below 2^31: launches with more run in another way.
    pub small_grids: bool,
    /// Words that an invocation filled and changed at few places since are not loaded, but selected by comparing places, for devices that load words
    /// at places of each lane's own one by one.
    pub places_compared: bool,
    /// Numbers that depend on nothing but an invocation's place in its workgroup are looked up where they take many steps, for devices that go over
    /// many workgroups one after the other.
    pub places_tabled: bool,
    /// What an invocation writes to its own words of workgroup memory it keeps, for devices whose registers don't wait in memory at barriers.
    pub own_words: bool,
    /// Bytes and half words that are taken out of words are loaded alone, for devices that load them.
    pub parts_of_words: bool,
    /// Booleans in workgroup memory and in private arrays are loaded and stored as words, for emitters that have no loads of them.
    pub bools_as_words: bool,
    /// Square roots and quotients take many instructions, so that branches around them stay.
    pub long_roots: bool,
    /// Of two exponentials of what numbers are less than the greater of them one is computed, for devices without an instruction for it.
    pub shared_exponentials: bool,
    /// A fused multiply-add is an instruction like a product, so that exact arithmetic uses it too where that changes no bit.
    pub fused: bool,
    /// Loops look whether the launch has to end, counted ones too.
    pub interruptible: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            specialization: Specialization::default(),
            workgroup_size: None,
            passes: Passes::default(),
            expand_math: false,
            approximations: Approximations::default(),
            narrow: Narrow::default(),
            array_values: GPU_REGISTERS,
            straight_array_values: GPU_REGISTERS,
            one_test: false,
            unrolling: Unrolling::default(),
            rounds_together: 1,
            round_ahead: false,
            merged: [1; 3],
            strides_together: false,
            trees_written_out: false,
            searches_written_out: false,
            rows_of_tiles: None,
            words_dealt: None,
            components_apart: None,
            made_of_counters: false,
            rejoined: false,
            small_grids: false,
            places_compared: false,
            places_tabled: false,
            own_words: false,
            parts_of_words: false,
            bools_as_words: false,
            long_roots: false,
            shared_exponentials: false,
            fused: false,
            interruptible: false,
        }
    }
}

/// How far loops with a known number of rounds are unrolled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Unrolling {
    /// Rounds of one loop.
    pub rounds: u32,
    /// Steps of all rounds of one loop.
    pub steps: u32,
    /// Steps that a kernel may gain: a long one gains little from more, and every later stage pays for them.
    pub growth: u32,
    /// Also loops with barriers, loops that may be left early, and loops that don't count but have constants of their own, such as
    /// `step <<= 1u`. Of a nest, inner loops come first where it does not fit as a whole.
    pub any_form: bool,
}

impl Unrolling {
    /// For devices that hide latency by having many loads under way, and whose branches are dear.
    pub const FAR: Unrolling = Unrolling { rounds: 64, steps: 2048, growth: 8192, any_form: true };
}

impl Default for Unrolling {
    fn default() -> Self {
        Unrolling { rounds: 16, steps: 256, growth: 1024, any_form: false }
    }
}

/// What the functions of f32 become in fast arithmetic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Approximations {
    /// Short polynomials.
    #[default]
    Polynomials,
    /// Operations such as [`super::Unary::RoughExp2`], for devices with instructions for them.
    Instructions,
    /// They stay what they are, for emitters whose compiler has them.
    Functions,
}

/// Who converts types that are stored otherwise than they compute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Narrow {
    /// The emitter: every element type appears in loads and stores.
    #[default]
    Native,
    /// The kernel, for devices with 8- and 16-bit integer loads and stores: only integers of 8 bits and more, f16, f32, f64
    /// and bool appear. A 4-bit store changes the 32-bit word around it atomically, so buffers are padded to 4 bytes.
    Bytes,
    /// The kernel, for devices that access memory in words: nothing of less than 32 bits appears but f16. Narrow stores change
    /// the word around them atomically, so buffers are padded to 4 bytes.
    Words,
}

/// A set of optimiser passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Passes(u32);

impl Passes {
    /// Constants and algebraic identities.
    pub const FOLD: Passes = Passes(1);
    /// Drops what nobody needs.
    pub const DEAD: Passes = Passes(1 << 1);
    /// Computes the same thing once.
    pub const COMMON: Passes = Passes(1 << 2);
    /// Moves out of loops what does not change in them.
    pub const INVARIANT: Passes = Passes(1 << 3);
    /// Cheaper operations, such as shifts for divisions.
    pub const STRENGTH: Passes = Passes(1 << 4);
    /// Finds loops that count.
    pub const COUNTED: Passes = Passes(1 << 5);
    /// Repeats the body of short loops instead of looping.
    pub const UNROLL: Passes = Passes(1 << 6);
    /// Ways that are never taken, and short ones that become a selection.
    pub const BRANCHES: Passes = Passes(1 << 7);
    /// Drops bounds checks that always hold.
    pub const RANGES: Passes = Passes(1 << 8);

    /// Private arrays become values, and loops are unrolled for it.
    pub const ARRAYS: Passes = Passes(1 << 9);

    /// Leaves workgroup memory as it is where everything is written before it is read.
    pub const CLEARS: Passes = Passes(1 << 10);

    /// Products that are added become one operation, in fast arithmetic and where it changes no bit.
    pub const CONTRACT: Passes = Passes(1 << 11);

    /// Several rounds of loops over memory at once.
    pub const BATCH: Passes = Passes(1 << 12);

    /// Loops without the guards that one test before them settles.
    pub const VERSIONS: Passes = Passes(1 << 13);

    /// Loops that invocations go through side by side count once for all of them, where that is asked for.
    pub const TOGETHER: Passes = Passes(1 << 14);

    /// Loads of loops with barriers a round ahead, where that is asked for.
    pub const AHEAD: Passes = Passes(1 << 15);

    /// Writes out the rounds of trees in workgroup memory, where that is asked for.
    pub const TREES: Passes = Passes(1 << 16);

    /// Functions work on the caller's variables instead of copies, where nobody sees the difference.
    pub const IN_PLACE: Passes = Passes(1 << 17);

    /// Does all rounds of short searches and selects the first hit, where that is asked for.
    pub const SEARCHES: Passes = Passes(1 << 18);

    /// Lays loops over tiles in workgroup memory along their rows, where that is asked for.
    pub const TILES: Passes = Passes(1 << 19);

    /// Deals columns of tiles out to neighbours, where that is asked for.
    pub const DEAL: Passes = Passes(1 << 20);

    /// Makes numbers that loops change evenly of their counters, where that is asked for.
    pub const EVENLY: Passes = Passes(1 << 21);

    /// Puts numbers together again that were taken apart, where that is asked for.
    pub const REJOIN: Passes = Passes(1 << 22);

    /// Selects what words hold that were filled shortly before, where that is asked for.
    pub const FILLED: Passes = Passes(1 << 23);

    /// Looks up what depends on an invocation's place alone, where that is asked for.
    pub const TABLES: Passes = Passes(1 << 24);

    /// Has an invocation for each component of vectors, where that is asked for.
    pub const COMPONENTS: Passes = Passes(1 << 25);

    const NAMES: [(&'static str, Passes); 26] = [
        ("fold", Passes::FOLD),
        ("dead", Passes::DEAD),
        ("common", Passes::COMMON),
        ("invariant", Passes::INVARIANT),
        ("strength", Passes::STRENGTH),
        ("counted", Passes::COUNTED),
        ("unroll", Passes::UNROLL),
        ("branches", Passes::BRANCHES),
        ("ranges", Passes::RANGES),
        ("arrays", Passes::ARRAYS),
        ("clears", Passes::CLEARS),
        ("contract", Passes::CONTRACT),
        ("batch", Passes::BATCH),
        ("versions", Passes::VERSIONS),
        ("together", Passes::TOGETHER),
        ("ahead", Passes::AHEAD),
        ("trees", Passes::TREES),
        ("in place", Passes::IN_PLACE),
        ("searches", Passes::SEARCHES),
        ("tiles", Passes::TILES),
        ("deal", Passes::DEAL),
        ("evenly", Passes::EVENLY),
        ("rejoin", Passes::REJOIN),
        ("filled", Passes::FILLED),
        ("tables", Passes::TABLES),
        ("components", Passes::COMPONENTS),
    ];

    /// Every pass.
    pub fn all() -> Passes {
        Passes((1 << Self::NAMES.len()) - 1)
    }

    /// No pass: the program as it was written.
    pub fn none() -> Passes {
        Passes(0)
    }

    /// These and no others.
    pub fn only(passes: Passes) -> Passes {
        passes
    }

    /// Every pass with its name.
    pub fn each() -> impl Iterator<Item = (&'static str, Passes)> {
        Self::NAMES.into_iter()
    }

    /// Those of `other` too.
    #[must_use]
    pub fn with(self, other: Passes) -> Passes {
        Passes(self.0 | other.0)
    }

    /// Less those of `other`.
    #[must_use]
    pub fn without(self, other: Passes) -> Passes {
        Passes(self.0 & !other.0)
    }

    /// All of `other` are here.
    pub fn contains(self, other: Passes) -> bool {
        self.0 & other.0 == other.0
    }
}

/// Every pass.
impl Default for Passes {
    fn default() -> Self {
        Passes::all()
    }
}
