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
/// `FRAME_OWNED_BY_INTERPRETER` of 3.14.
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
        // Include/internal/pycore_runtime.h of 3.13 and pycore_debug_offsets.h of 3.14: how many
        // members each struct of `_Py_DebugOffsets` has.
        (3, 13) => said(version, debug, &[3, 13, 9, 6, 10, 2, 4, 3, 3, 3, 2, 3, 3, 4]),
        (3, 14) => said(version, debug, &[3, 16, 9, 8, 11, 2, 4, 3, 3, 4, 3, 2, 3, 3, 4]),
        _ => None,
    }
}

/// What CPython says. `counts` are the numbers of members of the structs up to `unicode_object`;
/// the first member of each is the struct's size. `None` if that cannot be.
fn said(version: (u8, u8), debug: &[usize; WORDS], counts: &[usize]) -> Option<Layout> {
    const COOKIE: usize = usize::from_ne_bytes(*b"xdebugpy");
    let [cookie, hex, free_threaded] = debug[..3] else { return None };
    let said = ((hex >> 24) as u8, (hex >> 16) as u8);
    // Without a GIL objects begin otherwise, and threads have instructions of their own.
    if cookie != COOKIE || said != version || free_threaded != 0 {
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

    const COOKIE: usize = usize::from_ne_bytes(*b"xdebugpy");

    /// The members of the structs of `_Py_DebugOffsets` in Include/internal/pycore_debug_offsets.h
    /// of 3.14, with made-up numbers where none of a release is known.
    pub fn said_by_3_14() -> Vec<usize> {
        [
            vec![COOKIE, 0x030e_00f0, 0],
            // The runtime, and an interpreter.
            vec![400_000, 600, 632],
            vec![300_000; 16],
            // A thread: size, prev, next, interp, current_frame.
            vec![800, 0, 8, 16, 72, 160, 168, 200, 24],
            // A frame: size, previous, executable, instr_ptr, localsplus, owner, stackpointer.
            vec![88, 8, 0, 56, 80, 74, 64, 0],
            // Code: size, filename, name, qualname, linetable, firstlineno, ..., bytecode.
            vec![216, 112, 120, 128, 136, 68, 52, 96, 104, 208, 0],
            // An object, a type, a tuple, a list, a set, a dict, a float, an int.
            vec![16, 8],
            vec![416, 24, 88, 168],
            vec![32, 24, 16],
            vec![40, 24, 16],
            vec![200, 24, 40, 32],
            vec![48, 32, 40],
            vec![24, 16],
            vec![32, 16, 24],
            // Bytes and strings.
            vec![40, 16, 32],
            vec![64, 32, 16, 40],
        ]
        .concat()
    }

    fn layout_of(version: (u8, u8), said: &[usize]) -> Option<Layout> {
        of(version, &std::array::from_fn(|at| said.get(at).copied().unwrap_or(9)))
    }

    #[test]
    fn a_version_that_says_its_layout_is_believed_if_it_can_be_right() {
        let said = said_by_3_14();
        let layout = layout_of((3, 14), &said).expect("is known");
        assert_eq!((layout.next, layout.current, layout.of_c), (8, 72, None));
        assert_eq!((layout.previous, layout.code, layout.instruction), (8, 0, 56));
        assert_eq!((layout.owner, layout.table), (Some(74), Table::Entries));
        assert_eq!((layout.filename, layout.name, layout.linetable), (112, 120, 136));
        assert_eq!((layout.first_line, layout.bytecode), (68, 208));
        assert_eq!((layout.ascii, layout.compact, layout.kind), (40, 56, 2));
        for (version, member, value) in [
            ((3, 13), 0, COOKIE),
            ((3, 15), 0, COOKIE),
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
    fn a_version_that_does_not_say_its_layout_is_known_or_not() {
        for (minor, is_known) in [(9, false), (10, true), (11, true), (12, true), (13, false)] {
            assert_eq!(layout_of((3, minor), &[]).is_some(), is_known, "{minor}");
        }
    }
}
