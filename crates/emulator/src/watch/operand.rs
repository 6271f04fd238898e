//! How many bytes of memory an instruction of x86-64 loads or stores, for code that knows only
//! where an access begins.
//!
//! What is not listed here counts as one byte. So a use may be missed, but is never invented.

/// The bytes that the instruction at `code` uses from its address on; 1 if that is not known.
/// Takes no more of `code` than the instruction has. `mask` gives the value of a register k1 to k7,
/// if that is known.
pub(super) fn bytes(
    code: impl IntoIterator<Item = u8>,
    mask: impl FnOnce(u8) -> Option<u64>,
) -> usize {
    decode(&mut code.into_iter(), mask).unwrap_or(1)
}

/// Which of its meanings an opcode of vectors has: by the prefix before it, or two bits of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Plain,
    By66,
    ByF3,
    ByF2,
}

impl Kind {
    fn of_bits(bits: u8) -> Self {
        [Kind::Plain, Kind::By66, Kind::ByF3, Kind::ByF2][usize::from(bits & 3)]
    }
}

/// The opcodes after 0x0f, which the encodings of vectors have too.
const SECOND_MAP: u8 = 1;

fn decode(
    code: &mut impl Iterator<Item = u8>,
    mask: impl FnOnce(u8) -> Option<u64>,
) -> Option<usize> {
    let (mut short, mut repeat, mut wide) = (false, None, false);
    loop {
        match code.next()? {
            0x66 => short = true,
            0xf3 => repeat = Some(Kind::ByF3),
            0xf2 => repeat = Some(Kind::ByF2),
            // Segments, the size of addresses, and lock.
            0x26 | 0x2e | 0x36 | 0x3e | 0x64 | 0x65 | 0x67 | 0xf0 => {}
            rex @ 0x40..=0x4f => wide = rex & 8 != 0,
            0xc5 => {
                let last = code.next()?;
                return vector(code.next()?, Kind::of_bits(last), length(last >> 2 & 1), false);
            }
            0xc4 => {
                let (first, last) = (code.next()?, code.next()?);
                let (map, wide, bytes) = (first & 0x1f, last & 0x80 != 0, length(last >> 2 & 1));
                let opcode = code.next().filter(|_| map == SECOND_MAP)?;
                return vector(opcode, Kind::of_bits(last), bytes, wide);
            }
            0x62 => {
                let (first, second, last) = (code.next()?, code.next()?, code.next()?);
                // A broadcast loads one element.
                let is_whole = last & 0x10 == 0 && last & 0x60 != 0x60;
                let (map, wide, bytes) = (first & 7, second & 0x80 != 0, length(last >> 5 & 3));
                let opcode = code.next().filter(|_| map == SECOND_MAP && is_whole)?;
                let kind = Kind::of_bits(second);
                let bytes = vector(opcode, kind, bytes, wide)?;
                return match last & 7 {
                    0 => Some(bytes),
                    // A mask leaves elements out: those up to the first such one are used.
                    register => {
                        let element = element(opcode, kind, wide)?;
                        let first = mask(register)?.trailing_ones() as usize * element;
                        (first > 0).then_some(first.min(bytes))
                    }
                };
            }
            0x0f => {
                let opcode = code.next()?;
                if let Some(bytes) = after_0f(opcode, general(short, wide)) {
                    return Some(bytes);
                }
                let kind = repeat.unwrap_or(if short { Kind::By66 } else { Kind::Plain });
                // Those without a prefix have registers of 8 bytes.
                let is_old = kind == Kind::Plain && opcode > 0x5f;
                return vector(opcode, kind, if is_old { 8 } else { 16 }, wide);
            }
            opcode => return first_map(opcode, general(short, wide)),
        }
    }
}

/// Of a vector: 16, 32 or 64 bytes.
fn length(bits: u8) -> usize {
    16 << bits
}

/// Of a general register.
fn general(short: bool, wide: bool) -> usize {
    match (wide, short) {
        (true, _) => 8,
        (false, true) => 2,
        (false, false) => 4,
    }
}

/// Arithmetic of memory and a register or a constant, moves, and each step of a string operation.
fn first_map(opcode: u8, size: usize) -> Option<usize> {
    match opcode {
        0x00..=0x3f if matches!(opcode & 7, 1 | 3) => Some(size),
        0x63 => Some(4),
        0x81 | 0x83 | 0x85 | 0x87 | 0x89 | 0x8b | 0xc7 | 0xf7 => Some(size),
        0xa5 | 0xa7 | 0xab | 0xad | 0xaf => Some(size),
        _ => None,
    }
}

/// Conditional moves, products, exchanges, and loads that extend what they load.
fn after_0f(opcode: u8, size: usize) -> Option<usize> {
    match opcode {
        0x40..=0x4f | 0xaf | 0xb1 | 0xc1 => Some(size),
        0xb7 | 0xbf => Some(2),
        _ => None,
    }
}

/// Moves of vectors and of their elements, and arithmetic.
fn vector(opcode: u8, kind: Kind, bytes: usize, wide: bool) -> Option<usize> {
    match (opcode, kind) {
        (0x10 | 0x11 | 0x51 | 0x58 | 0x59 | 0x5c..=0x5f, Kind::ByF3) => Some(4),
        (0x10 | 0x11 | 0x51 | 0x58 | 0x59 | 0x5c..=0x5f, Kind::ByF2) => Some(8),
        (
            0x10 | 0x11 | 0x28 | 0x29 | 0x2b | 0x51..=0x59 | 0x5c..=0x5f,
            Kind::Plain | Kind::By66,
        ) => Some(bytes),
        (0x12 | 0x13 | 0x16 | 0x17, Kind::Plain | Kind::By66) => Some(8),
        (0x6e | 0x7e, Kind::By66) => Some(if wide { 8 } else { 4 }),
        (0x7e, Kind::ByF3) | (0xd6, Kind::By66) => Some(8),
        (0x6f | 0x7f, _) | (0xe7, Kind::Plain | Kind::By66) => Some(bytes),
        (
            0x60..=0x6d | 0x74..=0x76 | 0xd4 | 0xd8..=0xdf | 0xeb | 0xef | 0xf8..=0xfe,
            Kind::By66,
        ) => Some(bytes),
        _ => None,
    }
}

/// The bytes of an element, of moves and arithmetic that can have a mask.
fn element(opcode: u8, kind: Kind, wide: bool) -> Option<usize> {
    match (opcode, kind) {
        (0x10 | 0x11 | 0x28 | 0x29 | 0x51 | 0x54..=0x59 | 0x5c..=0x5f, Kind::Plain) => Some(4),
        (0x10 | 0x11 | 0x28 | 0x29 | 0x51 | 0x54..=0x59 | 0x5c..=0x5f, Kind::By66) => Some(8),
        (0x6f | 0x7f, Kind::ByF2) => Some(if wide { 2 } else { 1 }),
        (0x6f | 0x7f, Kind::By66 | Kind::ByF3) => Some(if wide { 8 } else { 4 }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::bytes;

    /// No mask is known.
    const UNKNOWN: fn(u8) -> Option<u64> = |_| None;

    /// As an assembler writes them.
    const INSTRUCTIONS: &[(&str, &[u8], usize)] = &[
        ("mov %al,(%rdi)", &[0x88, 0x07], 1),
        ("mov %eax,(%rdi)", &[0x89, 0x07], 4),
        ("mov %rax,(%rdi)", &[0x48, 0x89, 0x07], 8),
        ("mov %ax,(%rdi)", &[0x66, 0x89, 0x07], 2),
        ("movb $1,(%rdi)", &[0xc6, 0x07, 0x01], 1),
        ("movq $1,(%rdi)", &[0x48, 0xc7, 0x07, 1, 0, 0, 0], 8),
        ("add (%rdi),%rax", &[0x48, 0x03, 0x07], 8),
        ("add %eax,(%rdi)", &[0x01, 0x07], 4),
        ("cmpb $0,(%rdi)", &[0x80, 0x3f, 0x00], 1),
        ("movzbl (%rdi),%eax", &[0x0f, 0xb6, 0x07], 1),
        ("movzwl (%rdi),%eax", &[0x0f, 0xb7, 0x07], 2),
        ("movslq (%rdi),%rax", &[0x48, 0x63, 0x07], 4),
        ("lock cmpxchg %rcx,(%rdi)", &[0xf0, 0x48, 0x0f, 0xb1, 0x0f], 8),
        ("rep stos %al,(%rdi)", &[0xf3, 0xaa], 1),
        ("rep stos %rax,(%rdi)", &[0xf3, 0x48, 0xab], 8),
        ("rep stos %ax,(%rdi)", &[0x66, 0xf3, 0xab], 2),
        ("rep movsb", &[0xf3, 0xa4], 1),
        ("movss (%rdi),%xmm0", &[0xf3, 0x0f, 0x10, 0x07], 4),
        ("movsd %xmm0,(%rdi)", &[0xf2, 0x0f, 0x11, 0x07], 8),
        ("movups %xmm0,(%rdi)", &[0x0f, 0x11, 0x07], 16),
        ("movups %xmm8,(%rdi)", &[0x44, 0x0f, 0x11, 0x07], 16),
        ("movdqu (%rdi),%xmm0", &[0xf3, 0x0f, 0x6f, 0x07], 16),
        ("movdqa %xmm0,(%rdi)", &[0x66, 0x0f, 0x7f, 0x07], 16),
        ("movq (%rdi),%mm0", &[0x0f, 0x6f, 0x07], 8),
        ("movq (%rdi),%xmm0", &[0xf3, 0x0f, 0x7e, 0x07], 8),
        ("movq %xmm0,(%rdi)", &[0x66, 0x0f, 0xd6, 0x07], 8),
        ("movd (%rdi),%xmm0", &[0x66, 0x0f, 0x6e, 0x07], 4),
        ("movhps (%rdi),%xmm0", &[0x0f, 0x16, 0x07], 8),
        ("paddd (%rdi),%xmm0", &[0x66, 0x0f, 0xfe, 0x07], 16),
        ("punpcklbw (%rdi),%mm0", &[0x0f, 0x60, 0x07], 1),
        ("cvtsi2sd (%rdi),%xmm0", &[0xf2, 0x0f, 0x2a, 0x07], 1),
        ("vmovups %ymm0,(%rdi)", &[0xc5, 0xfc, 0x11, 0x07], 32),
        ("vmovups %xmm0,(%rdi)", &[0xc5, 0xf8, 0x11, 0x07], 16),
        ("vmovss (%rdi),%xmm0", &[0xc5, 0xfa, 0x10, 0x07], 4),
        ("vmovdqu %ymm8,(%r9)", &[0xc4, 0x41, 0x7e, 0x7f, 0x01], 32),
        ("vaddps (%rdi),%ymm0,%ymm0", &[0xc5, 0xfc, 0x58, 0x07], 32),
        ("vaddsd (%rdi),%xmm0,%xmm0", &[0xc5, 0xfb, 0x58, 0x07], 8),
        ("vcvtps2pd (%rdi),%ymm0", &[0xc5, 0xfc, 0x5a, 0x07], 1),
        ("vbroadcastss (%rdi),%ymm0", &[0xc4, 0xe2, 0x7d, 0x18, 0x07], 1),
        ("vmovups %zmm0,(%rdi)", &[0x62, 0xf1, 0x7c, 0x48, 0x11, 0x07], 64),
        ("vmovdqu64 %ymm16,(%rdi)", &[0x62, 0xe1, 0xfe, 0x28, 0x7f, 0x07], 32),
        ("vmovups %zmm0,(%rdi){%k1}", &[0x62, 0xf1, 0x7c, 0x49, 0x11, 0x07], 1),
        ("vaddps (%rdi){1to16},%zmm0,%zmm0", &[0x62, 0xf1, 0x7c, 0x58, 0x58, 0x07], 1),
    ];

    #[test]
    fn the_size_of_an_access_is_that_of_its_instruction() {
        for (text, code, size) in INSTRUCTIONS {
            assert_eq!(bytes(code.iter().copied(), UNKNOWN), *size, "{text}");
        }
    }

    #[test]
    fn an_access_with_a_mask_is_of_the_elements_that_the_mask_names() {
        // With the mask 0b1111 in k3.
        let masked: &[(&str, &[u8], usize)] = &[
            ("vmovdqu8 %zmm16,(%rdi){%k3}", &[0x62, 0xe1, 0x7f, 0x4b, 0x7f, 0x07], 4),
            ("vmovdqu16 %zmm16,(%rdi){%k3}", &[0x62, 0xe1, 0xff, 0x4b, 0x7f, 0x07], 8),
            ("vmovdqu32 (%rdi),%ymm16{%k3}", &[0x62, 0xe1, 0x7e, 0x2b, 0x6f, 0x07], 16),
            ("vmovdqa64 %zmm16,(%rdi){%k3}", &[0x62, 0xe1, 0xfd, 0x4b, 0x7f, 0x07], 32),
            ("vmovups %zmm0,(%rdi){%k3}", &[0x62, 0xf1, 0x7c, 0x4b, 0x11, 0x07], 16),
            ("vmovupd %xmm0,(%rdi){%k3}", &[0x62, 0xf1, 0xfd, 0x0b, 0x11, 0x07], 16),
            ("vaddps (%rdi),%zmm0,%zmm0{%k3}", &[0x62, 0xf1, 0x7c, 0x4b, 0x58, 0x07], 16),
            ("vpaddd (%rdi),%zmm0,%zmm0{%k3}", &[0x62, 0xf1, 0x7d, 0x4b, 0xfe, 0x07], 1),
        ];
        for (text, code, size) in masked {
            let used =
                |mask: u64| bytes(code.iter().copied(), |register| (register == 3).then_some(mask));
            assert_eq!(used(0b1111), *size, "{text}");
            assert_eq!(used(0b1110), 1, "{text}");
        }
    }

    #[test]
    fn no_byte_behind_an_instruction_is_read() {
        for (text, code, _) in INSTRUCTIONS {
            let mut taken = 0;
            bytes(code.iter().copied().inspect(|_| taken += 1), UNKNOWN);
            let has_operand = !text.starts_with("rep");
            assert!(taken + usize::from(has_operand) <= code.len(), "{text}");
        }
    }
}
