//! The frames of a thread: which code objects run, and at which instructions.

use pinlane_emulator::Note;

use super::interpreter::Interpreter;
use super::known::{self, Chain, Known, Place};
use super::layout::{Instructions, Layout, NO_CODE, Objects};
use super::memory::{Changing, Memory, Own, Recorded};

/// How many frames are looked at for one of the program's own.
const DEEPEST: usize = 100;

/// The number of the calling thread's chain of frames; of the main thread's if it has none.
#[inline]
pub fn here(python: &Interpreter) -> Option<usize> {
    if let Some(state) = python.this_thread() {
        let mut known = known::lock();
        let chain = if python.fits() {
            // SAFETY: the layout has led through the frames of a thread. What it leads to from the
            // state of this thread are its frames, their code objects, and strings and bytes of
            // these. They are alive and do not change while the thread is in its call.
            let own = unsafe { Own::new() };
            walk(&python.objects, &own, state, &mut known)
        } else {
            try_out(python, state, &mut known)
        };
        match chain {
            Ok(Some(chain)) => return known.number_of(chain),
            Ok(None) => {}
            Err(Broken) => return None,
        }
    }
    of_main_thread(python)
}

/// Notes the frames that the calling thread is in, the innermost first: of each the address of its
/// code object, and its instruction. Takes no lock and allocates nothing.
pub fn note(python: &Interpreter, frames: &mut Note) {
    let Some(state) = python.this_thread().filter(|_| python.fits()) else { return };
    let layout = &python.objects.layout;
    // SAFETY: as in `here`: the thread is in the instruction that a signal has interrupted.
    let own = unsafe { Own::new() };
    let mut next = current(&own, layout, state);
    for pair in frames.as_chunks_mut::<2>().0 {
        let read = loop {
            let Some(frame) = next.filter(|&frame| frame != 0) else { return };
            let Some(read) = Frame::read(&own, layout, frame) else { return };
            next = Some(read.previous);
            if read.has_code {
                break read;
            }
        };
        *pair = [read.code, read.offset as usize];
    }
}

/// The number of the chain of frames that were noted. Their code objects may be gone by now.
#[cold]
pub fn noted(python: &Interpreter, frames: &Note) -> Option<usize> {
    let mut known = known::lock();
    let (mut chain, mut own) = (Chain::default(), None);
    for &[code, offset] in frames.as_chunks::<2>().0.iter().take_while(|[code, _]| *code != 0) {
        let (code, is_own) = known.code(&python.objects, &Changing, code)?;
        let place = Place { code, offset: offset as u32 };
        chain.add(place);
        own = own.or(is_own.then_some(place));
    }
    chain.own = own.or(chain.first())?;
    known.number_of(chain)
}

#[cold]
fn of_main_thread(python: &Interpreter) -> Option<usize> {
    /// How often its frames are read, as they may change meanwhile.
    const TIMES: usize = 4;
    let newest = python.newest_thread()?;
    let mut known = known::lock();
    if let Some(number) = known.number_for_worker(newest) {
        return Some(number);
    }
    (0..TIMES).find_map(|_| {
        let recorded = Recorded::default();
        let state = python.main_thread(&recorded, newest)?;
        let chain = walk(&python.objects, &recorded, state, &mut known).ok()??;
        let number = known.number_of(chain.of_worker())?;
        known.keep_for_workers(newest, recorded, number);
        Some(number)
    })
}

/// Something is not what the layout says.
pub struct Broken;

/// The first walk, through memory that may not be what the layout says.
#[cold]
fn try_out(python: &Interpreter, state: usize, known: &mut Known) -> Result<Option<Chain>, Broken> {
    let chain = walk(&python.objects, &Changing, state, known);
    match chain {
        Ok(Some(_)) => python.has_fitted(),
        Ok(None) => {}
        Err(Broken) => {
            let own = 0_usize;
            let is_allowed = Changing.words((&raw const own).addr(), [0]).is_some();
            python.refuse(match is_allowed {
                true => "its frames are not as its version has them",
                false => "the system refuses process_vm_readv",
            });
        }
    }
    chain
}

/// The frames of a thread from the innermost on, those of libraries included; and the innermost of
/// the program's own, or else the innermost. `None` if the thread has no frames.
#[inline]
fn walk(
    objects: &Objects,
    memory: &impl Memory,
    state: usize,
    known: &mut Known,
) -> Result<Option<Chain>, Broken> {
    let layout = &objects.layout;
    let mut frame = current(memory, layout, state).ok_or(Broken)?;
    let mut chain = Chain::default();
    let mut own = None;
    for _ in 0..DEEPEST {
        if frame == 0 {
            break;
        }
        let read = Frame::read(memory, layout, frame).ok_or(Broken)?;
        frame = read.previous;
        if !read.has_code {
            continue;
        }
        let (code, is_own) = known.code(objects, memory, read.code).ok_or(Broken)?;
        let place = Place { code, offset: read.offset };
        chain.add(place);
        if is_own && own.is_none() {
            own = Some(place);
        }
        if own.is_some() && chain.is_full() {
            break;
        }
    }
    Ok(chain.first().map(|first| {
        chain.own = own.unwrap_or(first);
        chain
    }))
}

/// The innermost frame's code object and instruction.
pub fn innermost(layout: &Layout, memory: &impl Memory, state: usize) -> Option<(usize, u32)> {
    let mut frame = current(memory, layout, state)?;
    loop {
        let read = Frame::read(memory, layout, frame)?;
        if read.has_code {
            return Some((read.code, read.offset));
        }
        frame = read.previous;
    }
}

fn current(memory: &impl Memory, layout: &Layout, state: usize) -> Option<usize> {
    let [current] = memory.words(state, [layout.current])?;
    match layout.of_c {
        Some(offset) if current != 0 => Some(memory.words(current, [offset])?[0]),
        _ => Some(current),
    }
}

struct Frame {
    previous: usize,
    code: usize,
    /// Where its instruction begins in the code, in bytes.
    offset: u32,
    has_code: bool,
}

impl Frame {
    #[inline]
    fn read(memory: &impl Memory, layout: &Layout, at: usize) -> Option<Frame> {
        let members = [layout.previous, layout.code, layout.instruction];
        let [previous, code, instruction, owner] = match layout.owner {
            Some(owner) => memory.words(at, [members[0], members[1], members[2], owner])?,
            None => {
                let [previous, code, instruction] = memory.words(at, members)?;
                [previous, code, instruction, 0]
            }
        };
        // References have tags in their lowest bits since 3.14.
        let code = code & !3;
        let offset = match layout.instructions {
            Instructions::Index => i64::from(instruction as i32) * 2,
            Instructions::Address => instruction.wrapping_sub(code + layout.bytecode) as i64,
        };
        // Ahead of the first instruction, in a frame that begins; or not in this code.
        let offset = u32::try_from(offset).unwrap_or(0);
        // The owner is the lowest byte.
        Some(Frame { previous, code, offset, has_code: (owner as u8) < NO_CODE })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::super::layout::{self, WORDS};
    use super::*;

    /// Memory that a test has made up: objects by their addresses.
    #[derive(Default)]
    struct Made(HashMap<usize, Vec<u8>>);

    impl Memory for Made {
        fn words<const N: usize>(&self, at: usize, offsets: [usize; N]) -> Option<[usize; N]> {
            let object = self.0.get(&at)?;
            let words = offsets.map(|offset| object.get(offset..offset + 8));
            let is_there = words.iter().all(Option::is_some);
            let word = |word: Option<&[u8]>| word?.try_into().ok().map(usize::from_ne_bytes);
            is_there.then(|| words.map(|it| word(it).expect("is there")))
        }

        fn show<R>(&self, at: usize, bytes: usize, look: impl FnOnce(&[u8]) -> R) -> Option<R> {
            let inside = |(start, object): (&usize, &Vec<u8>)| {
                let offset = at.checked_sub(*start)?;
                object.get(offset..offset + bytes).map(<[u8]>::to_vec)
            };
            self.0.iter().find_map(inside).map(|bytes| look(&bytes))
        }
    }

    impl Made {
        /// An object with words at these offsets, and bytes behind them.
        fn put(&mut self, at: usize, words: &[(usize, usize)], behind: (usize, &[u8])) {
            let mut object = vec![0; 256];
            for &(offset, word) in words {
                object[offset..offset + 8].copy_from_slice(&word.to_ne_bytes());
            }
            object[behind.0..behind.0 + behind.1.len()].copy_from_slice(behind.1);
            self.0.insert(at, object);
        }
    }

    const TYPES: [usize; 3] = [0x100, 0x200, 0x300];

    fn objects_of_3_14() -> Objects {
        let [code, string, bytes] = TYPES;
        let said = layout::tests::said_by_3_14();
        let debug: [usize; WORDS] = std::array::from_fn(|at| said.get(at).copied().unwrap_or(7));
        let layout = layout::of((3, 14), &debug).expect("is known");
        Objects { layout, code, string, bytes }
    }

    /// A string whose characters take so many bytes.
    fn string(made: &mut Made, at: usize, text: &str, width: usize, is_ascii: bool) {
        let bytes: Vec<u8> =
            text.chars().flat_map(|c| u32::from(c).to_le_bytes().into_iter().take(width)).collect();
        let state = width << 2 | 1 << 5 | usize::from(is_ascii) << 6;
        let start = if is_ascii { 40 } else { 56 };
        let words = [(8, TYPES[1]), (16, text.chars().count()), (32, state)];
        made.put(at, &words, (start, &bytes));
    }

    /// Two frames of 3.14 below one without code, as a thread has them that runs a generator.
    fn made() -> Made {
        let layout = objects_of_3_14().layout;
        let mut made = Made::default();
        let (state, shim, inner, outer) = (0x10_000, 0x20_000, 0x30_000, 0x40_000);
        let (code, other) = (0x50_000, 0x60_000);
        let first = |code: usize| code + layout.bytecode;
        made.put(state, &[(72, shim)], (0, &[]));
        // Its executable is None, with a tag; its owner is the interpreter.
        made.put(shim, &[(0, 0xfff1), (8, inner), (56, 0)], (74, &[3]));
        made.put(inner, &[(0, code | 1), (8, outer), (56, first(code) + 2)], (74, &[1]));
        made.put(outer, &[(0, other), (8, 0), (56, first(other) + 6)], (74, &[0]));
        for (code, name) in [(code, 0x80_000), (other, 0x90_000)] {
            let words = [(8, TYPES[0]), (112, 0x70_000), (120, name), (136, 0xa0_000)];
            made.put(code, &words, (68, &10_u32.to_ne_bytes()));
        }
        string(&mut made, 0x70_000, "/w/\u{1f680}.py", 4, false);
        string(&mut made, 0x80_000, "caf\u{e9}", 1, false);
        string(&mut made, 0x90_000, "main", 1, true);
        // One unit each: the first line; a line more; two more; and again.
        let table = [0x80, 0, 0x80 | 11 << 3, 0, 0, 0x80 | 12 << 3, 0, 0, 0x80 | 11 << 3, 0, 0];
        made.put(0xa0_000, &[(8, TYPES[2]), (16, table.len())], (32, &table));
        made
    }

    fn walked(made: &Made) -> Option<pinlane_emulator::Site> {
        let mut known = Known::default();
        let chain = walk(&objects_of_3_14(), made, 0x10_000, &mut known).ok()??;
        let number = known.number_of(chain)?;
        known.site(number)
    }

    #[test]
    fn frames_of_3_14_have_tags_and_one_without_code() {
        let made = made();
        let site = walked(&made).expect("there are frames");
        assert_eq!((&*site.file, site.line), ("/w/\u{1f680}.py", 11));
        assert_eq!(site.function.as_deref(), Some("caf\u{e9}"));
        let callers: Vec<String> = site.callers.iter().map(ToString::to_string).collect();
        assert_eq!(callers, ["\u{1f680}.py:11 in caf\u{e9}", "\u{1f680}.py:14 in main"]);
        let layout = objects_of_3_14().layout;
        assert_eq!(innermost(&layout, &made, 0x10_000), Some((0x50_000, 2)));
    }

    #[test]
    fn what_is_not_as_the_layout_says_ends_the_walk() {
        for (at, offset, value) in [
            // The types of the code object, its file, its name and its table.
            (0x50_000, 8, 0x200),
            (0x70_000, 8, 0x300),
            (0x80_000, 8, 0),
            (0xa0_000, 8, 0x100),
            // A string with no such width; one whose characters are elsewhere.
            (0x70_000, 32, 3 << 2 | 1 << 5),
            (0x70_000, 32, 4 << 2),
            // More characters, and more bytes, than there are.
            (0x70_000, 16, 1 << 40),
            (0xa0_000, 16, 1 << 40),
            // A frame, and a code object, where there is none.
            (0x30_000, 8, 0x1234_5678),
            (0x30_000, 0, 0x1234_5678),
        ] {
            let mut made = made();
            let object = made.0.get_mut(&at).expect("is there");
            object[offset..offset + 8].copy_from_slice(&usize::to_ne_bytes(value));
            assert!(walked(&made).is_none(), "{at:#x} {offset}");
        }
        let mut circle = made();
        circle.0.get_mut(&0x40_000).expect("is there")[8..16]
            .copy_from_slice(&0x30_000_usize.to_ne_bytes());
        assert_eq!(walked(&circle).map(|site| site.callers.len()), Some(8));
        let mut empty = made();
        empty.put(0x10_000, &[(72, 0)], (0, &[]));
        assert!(walked(&empty).is_none());
    }
}
