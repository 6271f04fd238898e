//! Whether a file is the program's own, or of a library.

use std::path::{Component, Path};

/// Whether a file, as Python names it, is the program's own.
pub fn is_own(file: &str) -> bool {
    // Modules that are built in, and what PyTorch generates.
    let is_made = ["<frozen ", "<eval_with_key>"].iter().any(|begin| file.starts_with(begin));
    !is_made && (is_no_file(file) || !is_of_library(Path::new(file)))
}

/// Whether it is a name such as `<string>`, of code that is in no file.
pub fn is_no_file(file: &str) -> bool {
    file.starts_with('<') && file.ends_with('>')
}

fn is_of_library(file: &Path) -> bool {
    file.ancestors().skip(1).any(|folder| match folder.components().next_back() {
        Some(Component::Normal(name)) => {
            name == "site-packages"
                || name == "dist-packages"
                || (name == "pinlane" && folder.join("__main__.py").exists())
                || is_standard_library(folder)
        }
        _ => false,
    })
}

/// Whether a folder is that of the standard library, wherever it is installed.
fn is_standard_library(folder: &Path) -> bool {
    ["os.py", "threading.py", "sysconfig.py"].iter().all(|name| {
        let file = folder.join(name);
        // Of some installations there is only the package.
        file.exists() || file.with_extension("").join("__init__.py").exists()
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn libraries_are_known_by_what_is_in_their_folders() {
        let root = std::env::temp_dir().join(format!("pinlane-place-{}", std::process::id()));
        let put = |path: &str| {
            let file = root.join(path);
            fs::create_dir_all(file.parent().expect("a folder")).expect("can be made");
            fs::write(&file, "").expect("can be written");
            file.to_str().expect("UTF-8").to_owned()
        };
        put("std/os.py");
        put("std/threading.py");
        assert!(is_own(&put("std/json/decoder.py")));
        put("std/sysconfig/__init__.py");
        put("pinlane/__main__.py");
        for (file, own) in [
            ("std/json/decoder.py", false),
            ("std/os.py", false),
            ("a/site-packages/torch/nn.py", false),
            ("a/dist-packages/torch.py", false),
            ("pinlane/race.py", false),
            ("work/pinlane/train.py", true),
            ("work/python3.11/train.py", true),
            ("work/os.py", true),
            ("site-packages.py", true),
        ] {
            assert_eq!(is_own(&put(file)), own, "{file}");
        }
        fs::remove_dir_all(root).expect("is there");
        for (name, own) in [
            ("<string>", true),
            ("<stdin>", true),
            ("<frozen importlib._bootstrap>", false),
            ("<eval_with_key>.3", false),
            ("nowhere.py", true),
        ] {
            assert_eq!(is_own(name), own, "{name}");
        }
    }
}
