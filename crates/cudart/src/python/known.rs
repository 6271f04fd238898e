//! What was met, by numbers: code objects, and chains of frames.
//!
//! A code object that was met is known again by its address and its members, and by a digest of
//! what these contain: it may have been freed, and another one have its address and theirs.

use std::collections::HashMap;
use std::env;
use std::path::Path;
use std::sync::{Arc, MutexGuard};

use pinlane_base::lock::Mutex;
use pinlane_base::process::PerProcess;
use pinlane_emulator::{Frame, Site};

use super::layout::{BYTES, Objects, SIZE, TYPE, Table};
use super::lines::line_at;
use super::memory::{Changing, Memory, Recorded};
use super::text::Characters;
use super::{place, source};

/// A code object, and the byte at which an instruction of it begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Place {
    pub code: u32,
    pub offset: u32,
}

/// How many frames are kept.
const MOST: usize = 8;

/// The innermost frames of a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Chain {
    places: [Place; MOST],
    count: u8,
    /// The program's own innermost frame, which may be further out; or else the innermost.
    pub own: Place,
    by_worker: bool,
}

impl Chain {
    /// Adds the frame that called the last one, if there is room.
    #[inline]
    pub fn add(&mut self, place: Place) {
        if let Some(next) = self.places.get_mut(usize::from(self.count)) {
            *next = place;
            self.count += 1;
        }
    }

    /// The same of the main thread, for another thread.
    pub fn of_worker(self) -> Self {
        Chain { by_worker: true, ..self }
    }

    pub fn is_full(&self) -> bool {
        usize::from(self.count) == MOST
    }

    /// The innermost frame.
    pub fn first(&self) -> Option<Place> {
        (self.count > 0).then_some(self.places[0])
    }
}

/// What a code object contains.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Code {
    file: String,
    name: String,
    first_line: u32,
    table: Box<[u8]>,
    kind: Table,
}

impl Code {
    fn frame(&self, offset: u32) -> Frame {
        let line = line_at(self.kind, &self.table, self.first_line, offset);
        let line = line.unwrap_or(self.first_line);
        Frame::new(self.file.clone(), line, self.name.clone())
    }
}

/// A code object as it was met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Met {
    code: usize,
    file: usize,
    name: usize,
    table: usize,
    first_line: u32,
    contents: u64,
}

/// The most code objects and chains that are kept.
const CODES: usize = 1 << 16;
const CHAINS: usize = 1 << 20;

/// How many code objects are known by their addresses at a time.
const RECENT: usize = 256;

#[derive(Default)]
pub struct Known {
    /// Each where its address says; with its number, and whether it is the program's own.
    recent: Vec<(Met, u32, bool)>,
    codes: Vec<(Arc<Code>, bool)>,
    code_numbers: HashMap<Arc<Code>, u32>,
    chains: Vec<Chain>,
    chain_numbers: HashMap<Chain, usize>,
    /// The last one and its number: many calls come from a loop.
    last: Option<(Chain, usize)>,
    /// The last one of the main thread for another: the newest thread then, what was read, and its
    /// number.
    worker: Option<(usize, Recorded, usize)>,
}

impl Known {
    /// The line that a chain stands for, without its text.
    pub fn site(&self, number: usize) -> Option<Site> {
        let chain = self.chains.get(number)?;
        let frame = |place: &Place| self.codes[place.code as usize].0.frame(place.offset);
        let own = frame(&chain.own);
        let mut site = Site::new(own.file, own.line);
        site.function = Some(own.function);
        site.callers = chain.places[..usize::from(chain.count)].iter().map(frame).collect();
        site.by_worker = chain.by_worker;
        Some(site)
    }
}

static KNOWN: PerProcess<Mutex<Known>> = PerProcess::new();

pub fn lock() -> MutexGuard<'static, Known> {
    KNOWN.get().lock()
}

impl Known {
    /// The number of the code object at this address, and whether it is the program's own.
    #[inline]
    pub fn code(
        &mut self,
        objects: &Objects,
        memory: &impl Memory,
        code: usize,
    ) -> Option<(u32, bool)> {
        let layout = &objects.layout;
        let members = [TYPE, layout.filename, layout.name, layout.linetable, layout.first_line];
        let [kind, file, name, table, first_line] = memory.words(code, members)?;
        if kind != objects.code {
            return None;
        }
        let first_line = first_line as u32;
        let file_text = Characters::of(memory, layout, file, objects.string)?;
        let name_text = Characters::of(memory, layout, name, objects.string)?;
        let [kind, length] = memory.words(table, [TYPE, SIZE])?;
        if kind != objects.bytes {
            return None;
        }
        let contents = file_text.show(memory, |bytes| digest(0, bytes))?;
        let contents = name_text.show(memory, |bytes| digest(contents, bytes))?;
        let contents = memory.show(table + BYTES, length, |bytes| digest(contents, bytes))?;
        let met = Met { code, file, name, table, first_line, contents };
        let place = code / 32 % RECENT;
        match self.recent.get(place) {
            Some(&(known, number, is_own)) if known == met => return Some((number, is_own)),
            Some(_) => {}
            None => self.recent.resize(RECENT, Default::default()),
        }
        let (file, name) = (file_text.text(memory)?, name_text.text(memory)?);
        let table = memory.show(table + BYTES, length, |bytes| Box::from(bytes))?;
        let new = Code { file: absolute(file), name, first_line, table, kind: layout.table };
        let (number, is_own) = self.add(new)?;
        self.recent[place] = (met, number, is_own);
        Some((number, is_own))
    }

    #[cold]
    fn add(&mut self, code: Code) -> Option<(u32, bool)> {
        if let Some(&number) = self.code_numbers.get(&code) {
            return Some((number, self.codes[number as usize].1));
        }
        if self.codes.len() == CODES {
            return None;
        }
        let (is_own, code) = (place::is_own(&code.file), Arc::new(code));
        let number = self.codes.len() as u32;
        self.codes.push((Arc::clone(&code), is_own));
        self.code_numbers.insert(code, number);
        Some((number, is_own))
    }

    /// The number of the main thread's chain, for another thread, if it is that of the last time.
    pub fn number_for_worker(&self, newest: usize) -> Option<usize> {
        let (then, read, number) = self.worker.as_ref()?;
        (*then == newest && read.is_unchanged()).then_some(*number)
    }

    pub fn keep_for_workers(&mut self, newest: usize, read: Recorded, number: usize) {
        self.worker = Some((newest, read, number));
    }

    /// The number of a chain; `None` if there are too many.
    #[inline]
    pub fn number_of(&mut self, chain: Chain) -> Option<usize> {
        if let Some((last, number)) = self.last
            && last == chain
        {
            return Some(number);
        }
        let number = match self.chain_numbers.get(&chain) {
            Some(&number) => number,
            None if self.chains.len() == CHAINS => return None,
            None => {
                self.chains.push(chain);
                self.chain_numbers.insert(chain, self.chains.len() - 1);
                self.chains.len() - 1
            }
        };
        self.last = Some((chain, number));
        Some(number)
    }
}

/// The line that a chain stands for.
pub fn site(number: usize) -> Option<Site> {
    let mut site = lock().site(number)?;
    site.source = source::line(&site.file, site.line);
    Some(site)
}

/// The line of an instruction of the code object at this address.
pub fn line(objects: &Objects, code: usize, offset: u32) -> Option<u32> {
    let mut known = lock();
    let (number, _) = known.code(objects, &Changing, code)?;
    Some(known.codes[number as usize].0.frame(offset).line)
}

/// The absolute path of a file, if it is there; else what Python calls it.
fn absolute(file: String) -> String {
    if place::is_no_file(&file) || Path::new(&file).is_absolute() {
        return file;
    }
    let path = env::current_dir().map(|folder| folder.join(&file)).ok();
    let path = path.filter(|path| path.exists());
    path.and_then(|path| path.to_str().map(str::to_owned)).unwrap_or(file)
}

/// A digest of some bytes and of what came before. Blocks go four ways at once, as the processor
/// multiplies faster than it answers.
#[inline]
fn digest(before: u64, bytes: &[u8]) -> u64 {
    const KEYS: [u64; 4] = [
        0x9e37_79b9_7f4a_7c15,
        0xbf58_476d_1ce4_e5b9,
        0x94d0_49bb_1331_11eb,
        0xd6e8_feb8_6659_fd93,
    ];
    fn fold(word: u64, key: u64) -> u64 {
        let product = u128::from(word) * u128::from(key);
        product as u64 ^ (product >> 64) as u64
    }
    let mut all = fold(before ^ bytes.len() as u64, KEYS[3]);
    let (blocks, rest) = bytes.as_chunks::<32>();
    if !blocks.is_empty() {
        let mut ways = KEYS.map(|key| key ^ all);
        for block in blocks {
            for (way, (word, key)) in ways.iter_mut().zip(block.as_chunks().0.iter().zip(KEYS)) {
                *way = fold(*way ^ u64::from_le_bytes(*word), key);
            }
        }
        let [a, b, c, d] = ways;
        all = fold(a ^ b.rotate_left(32), KEYS[0]) ^ fold(c ^ d.rotate_left(32), KEYS[1]);
    }
    let (words, rest) = rest.as_chunks();
    for word in words {
        all = fold(all ^ u64::from_le_bytes(*word), KEYS[1]);
    }
    if !rest.is_empty() {
        let last = bytes.last_chunk().map_or_else(
            || rest.iter().fold(0, |word, &byte| word << 8 | u64::from(byte)),
            |last| u64::from_le_bytes(*last),
        );
        all = fold(all ^ last, KEYS[2]);
    }
    all
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn a_digest_depends_on_each_bit_and_on_the_length() {
        for length in [0, 1, 7, 8, 9, 31, 32, 33, 100] {
            let bytes = vec![7; length];
            let mut digests = HashSet::from([digest(0, &bytes), digest(1, &bytes)]);
            for bit in 0..8 * length {
                let mut other = bytes.clone();
                other[bit / 8] ^= 1 << (bit % 8);
                digests.insert(digest(0, &other));
            }
            digests.insert(digest(0, &[&bytes[..], &[0]].concat()));
            assert_eq!(digests.len(), 8 * length + 3);
        }
    }

    #[test]
    fn a_chain_keeps_its_number() {
        let mut known = Known::default();
        let mut chain = Chain::default();
        let mut numbers = Vec::new();
        for code in 0..20 {
            chain.add(Place { code, offset: 2 * code });
            numbers.push(known.number_of(chain).expect("there is room"));
        }
        assert_eq!(numbers[..8], [0, 1, 2, 3, 4, 5, 6, 7]);
        assert!(chain.is_full() && numbers[8..].iter().all(|&number| number == 7));
        assert_eq!(known.number_of(chain.of_worker()), Some(8));
        assert_eq!(known.number_of(chain), Some(7));
    }
}
