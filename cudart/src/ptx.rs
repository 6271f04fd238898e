//! What the text of PTX says of the kernels and variables in it: their names and sizes.

use std::collections::BTreeMap;

/// The kernels and variables of a module.
#[derive(Debug, Default, PartialEq)]
pub struct Module {
    /// The sizes of the parameters of each kernel.
    pub kernels: BTreeMap<String, Vec<usize>>,
    /// The sizes of variables in global and constant memory.
    pub variables: BTreeMap<String, usize>,
}

/// Reads a module; `None` if the text is no PTX.
pub fn read(text: &str) -> Option<Module> {
    let text = without_comments(text);
    let mut words = words(&text).into_iter().peekable();
    let mut module = Module::default();
    let mut is_ptx = false;
    // Variables inside of functions are not the module's.
    let mut depth = 0_usize;
    while let Some(word) = words.next() {
        match word {
            ".version" => is_ptx = true,
            "{" => depth += 1,
            "}" => depth = depth.saturating_sub(1),
            ".entry" => {
                let name = words.next()?.to_owned();
                let list: Vec<&str> = match words.next_if_eq(&"(") {
                    Some(_) => words.by_ref().take_while(|&word| word != ")").collect(),
                    None => Vec::new(),
                };
                let parameters = list.split(|&word| word == ",").filter(|one| !one.is_empty());
                let sizes: Option<Vec<usize>> =
                    parameters.map(|one| Some(declared(one)?.1)).collect();
                module.kernels.insert(name, sizes?);
            }
            ".global" | ".const" if depth == 0 => {
                let end = |word: &&str| !matches!(*word, ";" | "=");
                let mut one = Vec::new();
                while let Some(word) = words.next_if(end) {
                    one.push(word);
                }
                if let Some((name, bytes)) = declared(&one) {
                    module.variables.insert(name.to_owned(), bytes);
                }
            }
            _ => {}
        }
    }
    is_ptx.then_some(module)
}

fn without_comments(text: &str) -> String {
    let mut kept = String::new();
    let mut rest = text;
    while let Some(start) = rest.find('/') {
        kept.push_str(&rest[..start]);
        let (end, skipped) = match rest.as_bytes().get(start + 1) {
            Some(b'/') => ("\n", 0),
            Some(b'*') => ("*/", 2),
            _ => {
                kept.push('/');
                rest = &rest[start + 1..];
                continue;
            }
        };
        kept.push(' ');
        rest = rest[start..].find(end).map_or("", |at| &rest[start + at + skipped..]);
    }
    kept + rest
}

/// Names, numbers and directives; each other sign is a word of its own.
fn words(text: &str) -> Vec<&str> {
    let of_word = |c: char| c.is_alphanumeric() || matches!(c, '_' | '$' | '.' | '%');
    let mut words = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '"' => rest[1..].find('"').map_or(rest.len(), |end| end + 2),
            _ if of_word(first) => rest.find(|c| !of_word(c)).unwrap_or(rest.len()),
            _ => first.len_utf8(),
        };
        let (word, after) = rest.split_at(length);
        words.push(word);
        rest = after.trim_start();
    }
    words
}

/// The name of a declaration, and its size: `.param .align 8 .b8 name[24]`.
fn declared<'a>(words: &[&'a str]) -> Option<(&'a str, usize)> {
    let mut of_type = None;
    let mut at = 0;
    while let Some(word) = words.get(at).filter(|word| word.starts_with('.')) {
        match *word {
            // A number follows.
            ".align" | ".maxnreg" => at += 1,
            _ => of_type = of_type.or_else(|| size_of_type(word)),
        }
        at += 1;
    }
    let (&name, dimensions) = words.get(at..)?.split_first()?;
    let mut bytes = of_type?;
    for dimension in dimensions.split(|&word| word == "[").skip(1) {
        bytes = bytes.checked_mul(dimension.first()?.parse().ok()?)?;
    }
    Some((name, bytes))
}

/// `.u64` is 8 bytes, `.pred` is no type of memory.
fn size_of_type(word: &str) -> Option<usize> {
    let bits = word.strip_prefix('.')?.trim_start_matches(|c: char| c.is_ascii_lowercase());
    match bits {
        "8" => Some(1),
        "16" => Some(2),
        "16x2" | "32" => Some(4),
        "64" => Some(8),
        "128" => Some(16),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_and_variables_are_read_with_their_sizes() {
        let text = r#"
            // .entry commented(
            .version 8.0
            .target sm_90 /* .entry this( */
            .address_size 64
            .visible .global .align 4 .b8 table[4][16];
            .global .u32 counter = 5;
            .extern .shared .align 8 .b8 shared[];
            .visible .entry _Z3addPKfPfi(
                .param .u64 .ptr .global .align 4 _Z3addPKfPfi_param_0,
                .param .u64 b,
                .param .u32 c,
                .param .align 8 .b8 d[24]
            )
            .maxntid 128, 1, 1
            { .reg .b32 %r<3>; .global .u32 inner; ld.param.u64 %rd1, [b]; ret; }
            .entry none() { ret; }
            .entry bare { ret; }
            .file 1 "a .entry b(.cu"
        "#;
        let module = read(text).unwrap();
        let kernels: Vec<_> = module.kernels.iter().map(|(n, s)| (n.as_str(), s.clone())).collect();
        let expected =
            [("_Z3addPKfPfi", vec![8, 8, 4, 24]), ("bare", Vec::new()), ("none", Vec::new())];
        assert_eq!(kernels, expected);
        let variables: Vec<_> = module.variables.iter().map(|(n, s)| (n.as_str(), *s)).collect();
        assert_eq!(variables, [("counter", 4), ("table", 64)]);
    }

    #[test]
    fn other_texts_are_no_modules() {
        for text in ["", "hello", "/* .version", "/", ".entry", "\"", ".version .entry"] {
            assert_eq!(read(text), None, "{text}");
        }
        assert_eq!(read(".version 8.0"), Some(Module::default()));
    }
}
