//! Where CPython's structs have their members.
//!
//! From 3.13 on, CPython says it itself: `_PyRuntime` begins with `_Py_DebugOffsets`, whose members
//! depend on the minor version. For older versions the numbers are those of the headers of the
//! minor version, for processors with words of 64 bits. A minor version keeps these structs.

/// How the instructions of a frame are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instructions {
    /// `f_lasti` of 3.10: an `int`, in units of two bytes.
    Index,
    /// An address: of `prev_instr` or `instr_ptr`.
    Address,
}

/// How a code object writes its lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Table {
    /// Of PEP 626, until 3.10.
    Pairs,
    /// Of PEP 657, since 3.11.
    Entries,
}

/// Offsets of members in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// `PyThreadState`: the next one, which is older.
    pub next: usize,
    /// `PyThreadState`: the current frame, or the struct that has it.
    pub current: usize,
    /// `_PyCFrame.current_frame`, if a thread state leads to such a struct.
    pub of_c: Option<usize>,
    /// Of a frame: the frame that called it, its code object, and its instruction.
    pub previous: usize,
    pub code: usize,
    pub instruction: usize,
    pub instructions: Instructions,
    /// Of a frame: who owns it, as one byte.
    pub owner: Option<usize>,
    /// `PyCodeObject`.
    pub filename: usize,
    pub name: usize,
    pub linetable: usize,
    pub first_line: usize,
    /// `co_code_adaptive`, the first instruction, if it is in the code object.
    pub bytecode: usize,
    pub table: Table,
    /// `sizeof(PyASCIIObject)` and `sizeof(PyCompactUnicodeObject)`: where characters begin.
    pub ascii: usize,
    pub compact: usize,
    /// The first bit of `PyASCIIObject.state.kind`.
    pub kind: u32,
}

/// The layout, and the addresses of the types of code objects, strings and bytes.
#[derive(Clone, Copy, Debug)]
pub struct Objects {
    pub layout: Layout,
    pub code: usize,
    pub string: usize,
    pub bytes: usize,
}

/// An owner from this on has no code of the program: `FRAME_OWNED_BY_CSTACK` of 3.12 and 3.13,
/// `FRAME_OWNED_BY_INTERPRETER` since 3.14.
pub const NO_CODE: u8 = 3;

/// `PyObject.ob_type`, and `PyVarObject.ob_size`, which is the length of bytes.
pub const TYPE: usize = 8;
pub const SIZE: usize = 16;
/// `PyBytesObject.ob_sval`.
pub const BYTES: usize = 32;
/// `PyASCIIObject.length` and `.state`.
pub const LENGTH: usize = 16;
pub const STATE: usize = 32;

/// Include/cpython/pystate.h (`_ts`), frameobject.h (`_frame`), code.h, unicodeobject.h of 3.10.
const V3_10: Layout = Layout {
    next: 8,
    current: 24,
    of_c: None,
    previous: 24,
    code: 32,
    instruction: 96,
    instructions: Instructions::Index,
    owner: None,
    filename: 104,
    name: 112,
    linetable: 120,
    first_line: 40,
    bytecode: 0,
    table: Table::Pairs,
    ascii: 48,
    compact: 72,
    kind: 2,
};

/// Include/cpython/pystate.h (`_ts`, `_PyCFrame`), internal/pycore_frame.h
/// (`_PyInterpreterFrame`), code.h and unicodeobject.h of 3.11.
const V3_11: Layout = Layout {
    current: 56,
    of_c: Some(8),
    previous: 48,
    code: 32,
    instruction: 56,
    instructions: Instructions::Address,
    owner: Some(69),
    filename: 112,
    name: 120,
    linetable: 136,
    first_line: 72,
    bytecode: 184,
    table: Table::Entries,
    ..V3_10
};

/// The same headers of 3.12.
const V3_12: Layout = Layout {
    of_c: Some(0),
    previous: 8,
    code: 0,
    owner: Some(70),
    first_line: 68,
    bytecode: 192,
    ascii: 40,
    compact: 56,
    ..V3_11
};

/// How many words of `_PyRuntime` are looked at.
pub const WORDS: usize = 96;

/// The layout of this version; `debug` are the first words of `_PyRuntime`.
pub fn of(version: (u8, u8), debug: &[usize; WORDS]) -> Option<Layout> {
    match version {
        (3, 10) => Some(V3_10),
        (3, 11) => Some(V3_11),
        (3, 12) => Some(V3_12),
        // Include/internal/pycore_runtime.h of 3.13 and pycore_debug_offsets.h since 3.14: how many
        // members each struct of `_Py_DebugOffsets` has. The one member of `err_stackitem` of 3.15
        // is counted as one more of the thread's, because that struct does not say its size.
        (3, 13) => said(version, debug, &[3, 13, 9, 6, 10, 2, 4, 3, 3, 3, 2, 3, 3, 4]),
        (3, 14) => said(version, debug, &[3, 16, 9, 8, 11, 2, 4, 3, 3, 4, 3, 2, 3, 3, 4]),
        (3, 15) => said(version, debug, &[3, 16, 17, 8, 11, 2, 6, 2, 3, 3, 4, 3, 2, 3, 3, 5]),
        _ => None,
    }
}

/// Whether CPython says that it is built without a GIL. Then objects begin otherwise, and threads
/// have instructions of their own.
pub fn is_free_threaded(debug: &[usize; WORDS]) -> bool {
    debug[0] == COOKIE && debug[2] != 0
}

const COOKIE: usize = usize::from_ne_bytes(*b"xdebugpy");

/// What CPython says. `counts` are the numbers of members of the structs up to `unicode_object`;
/// the first member of each is the struct's size. `None` if that cannot be.
fn said(version: (u8, u8), debug: &[usize; WORDS], counts: &[usize]) -> Option<Layout> {
    let said = ((debug[1] >> 24) as u8, (debug[1] >> 16) as u8);
    if debug[0] != COOKIE || said != version || is_free_threaded(debug) {
        return None;
    }
    let mut structs = Vec::new();
    let mut rest = &debug[3..];
    for &count in counts {
        let (members, more) = rest.split_at_checked(count)?;
        let size = members[0];
        if size == 0 || size > 1 << 24 || members[1..].iter().any(|&member| member > size) {
            return None;
        }
        structs.push(members);
        rest = more;
    }
    let [thread, frame, code, object] = structs[2..6] else { return None };
    let [.., bytes, unicode] = structs[..] else { return None };
    let objects = [object[1], bytes[1], bytes[2], unicode[2], unicode[1]];
    if objects != [TYPE, SIZE, BYTES, LENGTH, STATE] {
        return None;
    }
    Some(Layout {
        next: thread[2],
        current: thread[4],
        of_c: None,
        previous: frame[1],
        code: frame[2],
        instruction: frame[3],
        instructions: Instructions::Address,
        owner: Some(frame[5]),
        filename: code[1],
        name: code[2],
        linetable: code[4],
        first_line: code[5],
        bytecode: code[9],
        table: Table::Entries,
        ascii: unicode[3],
        // `utf8_length` and `utf8`.
        compact: unicode[3] + 16,
        kind: 2,
    })
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// The structs of `_Py_DebugOffsets`, as a release gives their members.
    fn said_by(version: usize, structs: &[&[usize]]) -> Vec<usize> {
        [&[COOKIE, version, 0], &*structs.concat()].concat()
    }

    fn said_by_3_13() -> Vec<usize> {
        said_by(
            0x030d_00f0,
            &[
                // The runtime, and an interpreter.
                &[283_320, 608, 632],
                &[194_968, 7272, 7264, 7344, 7400, 7656, 7640, 7648, 16, 7752, 0, 7768, 7760],
                // A thread: size, prev, next, interp, current_frame.
                &[304, 0, 8, 16, 72, 152, 160, 232, 32],
                // A frame: size, previous, executable, instr_ptr, localsplus, owner.
                &[80, 8, 0, 56, 72, 70],
                // Code: size, filename, name, qualname, linetable, firstlineno, ..., bytecode.
                &[208, 112, 120, 128, 136, 68, 52, 96, 104, 200],
                // An object, a type, a tuple, a list, a dict, a float, an int.
                &[16, 8],
                &[416, 24, 88, 168],
                &[32, 24, 16],
                &[40, 24, 16],
                &[48, 32, 40],
                &[24, 16],
                &[32, 16, 24],
                // Bytes and strings.
                &[40, 16, 32],
                &[64, 32, 16, 40],
            ],
        )
    }

    /// Those of 3.14.8.
    pub fn said_by_3_14() -> Vec<usize> {
        let interpreter =
            [225_864, 7280, 7272, 7344, 7360, 7408, 7688, 7672, 7680, 16, 7784, 0, 7800, 7792];
        said_by(
            0x030e_08f0,
            &[
                &[316_616, 784, 808],
                &[&interpreter[..], &[7992, 0]].concat(),
                &[832, 0, 8, 16, 72, 152, 160, 232, 32],
                // Since 3.14: stackpointer, tlbc_index; and co_tlbc.
                &[88, 8, 0, 56, 80, 74, 64, 0],
                &[216, 112, 120, 128, 136, 68, 52, 96, 104, 208, 0],
                &[16, 8],
                &[416, 24, 88, 168],
                &[40, 32, 16],
                &[40, 24, 16],
                // A set.
                &[200, 24, 40, 32],
                &[48, 32, 40],
                &[24, 16],
                &[32, 16, 24],
                &[40, 16, 32],
                &[64, 32, 16, 40],
            ],
        )
    }

    fn said_by_3_15() -> Vec<usize> {
        let interpreter =
            [226_240, 7272, 7264, 7336, 7352, 7400, 7592, 7576, 7584, 16, 7736, 0, 7752, 7744];
        said_by(
            0x030f_00f0,
            &[
                &[346_568, 912, 936],
                &[&interpreter[..], &[7944, 0]].concat(),
                &[888, 0, 8, 16, 72, 80, 88, 96, 176, 184, 256, 32, 36, 40, 136, 288],
                // What is handled.
                &[0],
                &[88, 8, 0, 56, 80, 74, 64, 0],
                &[216, 112, 120, 128, 136, 68, 52, 96, 104, 208, 0],
                &[16, 8],
                &[424, 24, 88, 168, 32, 288],
                // A type that is made while the program runs.
                &[944, 888],
                &[40, 32, 16],
                &[40, 24, 16],
                &[200, 24, 40, 32],
                &[48, 32, 40],
                &[24, 16],
                &[32, 16, 24],
                &[40, 16, 32],
                &[64, 32, 16, 40, 56],
            ],
        )
    }

    fn layout_of(version: (u8, u8), said: &[usize]) -> Option<Layout> {
        of(version, &std::array::from_fn(|at| said.get(at).copied().unwrap_or(9)))
    }

    #[test]
    fn a_version_that_says_its_layout_is_believed() {
        for (version, said, owner, bytecode) in [
            ((3, 13), said_by_3_13(), 70, 200),
            ((3, 14), said_by_3_14(), 74, 208),
            ((3, 15), said_by_3_15(), 74, 208),
        ] {
            let layout = layout_of(version, &said).expect("is known");
            assert_eq!((layout.next, layout.current, layout.of_c), (8, 72, None));
            assert_eq!((layout.previous, layout.code, layout.instruction), (8, 0, 56));
            assert_eq!((layout.owner, layout.bytecode), (Some(owner), bytecode), "{version:?}");
            assert_eq!((layout.filename, layout.name, layout.linetable), (112, 120, 136));
            assert_eq!((layout.first_line, layout.table), (68, Table::Entries));
            assert_eq!((layout.ascii, layout.compact, layout.kind), (40, 56, 2));
        }
    }

    #[test]
    fn a_version_that_says_what_cannot_be_right_is_not_believed() {
        let said = said_by_3_14();
        for (version, member, value) in [
            // Another version.
            ((3, 13), 0, COOKIE),
            ((3, 15), 0, COOKIE),
            ((3, 16), 0, COOKIE),
            ((3, 14), 0, COOKIE + 1),
            ((3, 14), 1, 0x030d_00f0),
            // Without a GIL.
            ((3, 14), 2, 1),
            // A frame that is shorter than its members, and an object whose type is elsewhere.
            ((3, 14), 31, 40),
            ((3, 14), 51, 16),
        ] {
            let mut other = said.clone();
            other[member] = value;
            assert_eq!(layout_of(version, &other), None, "{member}");
        }
        let one_more = [&said[..31], &[88], &said[31..]].concat();
        assert_eq!(layout_of((3, 14), &one_more), None);
    }

    #[test]
    fn a_build_without_a_gil_is_known_as_one() {
        let mut debug = [0; WORDS];
        assert!(!is_free_threaded(&debug));
        debug[2] = 1;
        assert!(!is_free_threaded(&debug), "no debug offsets");
        debug[0] = COOKIE;
        assert!(is_free_threaded(&debug));
        debug[2] = 0;
        assert!(!is_free_threaded(&debug));
    }

    #[test]
    fn a_version_that_does_not_say_its_layout_is_known_or_not() {
        for (minor, is_known) in [(9, false), (10, true), (11, true), (12, true), (13, false)] {
            assert_eq!(layout_of((3, minor), &[]).is_some(), is_known, "{minor}");
        }
    }
}
