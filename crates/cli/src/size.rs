//! Sizes on the command line.

/// Reads `4096`, `64K`, `4MiB` or `1.5G`; the letters count in 1024s.
pub fn bytes(text: &str) -> Result<usize, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        _ => return Err(HOW.into()),
    };
    let value = digits.trim().parse::<f64>().map_err(|_| HOW.to_owned())?;
    let bytes = value * f64::from(1u32 << shift);
    if (1.0..=1e15).contains(&bytes) && bytes.fract() == 0.0 {
        Ok(bytes as usize)
    } else {
        Err(HOW.into())
    }
}

const HOW: &str = "give a whole number of bytes above 0, such as 4096, 64K, 4M or 1.5G";

#[cfg(test)]
mod tests {
    use super::bytes;

    #[test]
    fn units_count_in_1024s() {
        for (text, expected) in
            [("1", 1), ("4096", 4096), ("64K", 65536), ("4MiB", 4 << 20), ("1.5g", 3 << 29)]
        {
            assert_eq!(bytes(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for text in ["", "0", "-1", "1.5", "four", "4X", "K", "1e30", "nan", "inf", "9999999999G"] {
            assert!(bytes(text).is_err(), "{text}");
        }
    }
}
