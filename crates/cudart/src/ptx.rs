//! What the text of PTX says of the kernels and variables in it: their names and sizes.

use std::collections::BTreeMap;

/// The parameters of a kernel are no longer than that, all together.
const MOST_PARAMETER_BYTES: usize = 32_764;

/// The kernels and variables of a module.
#[derive(Debug, Default, PartialEq)]
pub struct Module {
    /// The sizes of the parameters of each kernel.
    pub kernels: BTreeMap<String, Vec<usize>>,
    /// The sizes of variables in global and constant memory.
    pub variables: BTreeMap<String, usize>,
}

/// Reads a module; `None` if the text is no PTX, or a kernel has more parameters than it can have.
pub fn read(text: &str) -> Option<Module> {
    let mut words = words(text).into_iter().peekable();
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
                let sizes = sizes?;
                let sum = sizes.iter().try_fold(0_usize, |sum, &size| sum.checked_add(size));
                if sum? > MOST_PARAMETER_BYTES {
                    return None;
                }
                module.kernels.insert(name, sizes);
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

/// Names, numbers, directives and strings; each other sign is a word of its own. Comments are none.
fn words(text: &str) -> Vec<&str> {
    let of_word = |c: char| c.is_alphanumeric() || matches!(c, '_' | '$' | '.' | '%');
    let mut words = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        // The end of what begins with so many bytes.
        let end = |begin: usize, sign: &str| {
            rest[begin..].find(sign).map_or(rest.len(), |at| begin + at + sign.len())
        };
        let (length, is_word) = match first {
            '/' if rest.starts_with("//") => (end(2, "\n"), false),
            '/' if rest.starts_with("/*") => (end(2, "*/"), false),
            '"' => (end(1, "\""), true),
            _ if of_word(first) => (rest.find(|c| !of_word(c)).unwrap_or(rest.len()), true),
            _ => (first.len_utf8(), true),
        };
        let (word, after) = rest.split_at(length);
        words.extend(is_word.then_some(word));
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
    fn comments_and_strings_end_where_they_end() {
        let text = r#"
            .version 8.0
            /*/ .entry commented() */
            .file 1 "/a//b/*.cu"
            .entry real() // "
            .file 2 "*/ .entry quoted()"
        "#;
        let kernels: Vec<_> = read(text).unwrap().kernels.into_keys().collect();
        assert_eq!(kernels, ["real"]);
        for open in ["/*", "/*/", "//", "\""] {
            assert_eq!(read(&format!(".version 8.0 {open}")), Some(Module::default()), "{open}");
        }
    }

    /// No launch has that many bytes to copy.
    #[test]
    fn parameters_that_no_kernel_has_make_no_module() {
        let kernel = |bytes: &str| read(&format!(".version 8.0 .entry k(.param .b8 a[{bytes}])"));
        assert!(kernel("32764").is_some());
        for bytes in ["32765", "9223372036854775807", "-1"] {
            assert_eq!(kernel(bytes), None, "{bytes}");
        }
        let two = ".version 8.0 .entry k(.param .b8 a[32764], .param .u8 b)";
        assert_eq!(read(two), None);
    }

    #[test]
    fn other_texts_are_no_modules() {
        for text in ["", "hello", "/* .version", "/", ".entry", "\"", ".version .entry"] {
            assert_eq!(read(text), None, "{text}");
        }
        assert_eq!(read(".version 8.0"), Some(Module::default()));
    }
}
