//! Headers of `.npy` files, the format of NumPy (NEP 1).

use oikaze_protocol::coherence::Field;

const MAGIC: &[u8; 6] = b"\x93NUMPY";

/// Maximum length of a header that is read, in bytes. Headers of version 1.0 are not longer.
pub(super) const HEADER_MAX: usize = 10 + u16::MAX as usize;

/// Element of an array in the words of NumPy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ElementFormat {
    /// Value of `descr`, without spaces.
    descr: String,
    /// Axes that follow those of the array, if an element is a fixed array.
    inner: Vec<usize>,
}

/// Returns NumPy's name of a type of numbers.
fn number(kind: &str) -> Option<&'static str> {
    Some(match kind {
        "bool" => "|b1",
        "u8" => "|u1",
        "i8" => "|i1",
        "u16" => "<u2",
        "i16" => "<i2",
        "u32" => "<u4",
        "i32" => "<i4",
        "u64" | "usize" => "<u8",
        "i64" | "isize" => "<i8",
        "f32" => "<f4",
        "f64" => "<f8",
        "c64" => "<c8",
        "c128" => "<c16",
        _ => return None,
    })
}

/// Splits a path such as `v[2][3]` into the name and the extents.
fn extents(path: &str) -> Option<(&str, Vec<usize>)> {
    let (name, rest) = path.split_at(path.find('[').unwrap_or(path.len()));
    let mut extents = Vec::new();
    for part in rest.split_terminator(']') {
        extents.push(part.strip_prefix('[')?.parse().ok()?);
    }
    Some((name, extents))
}

fn tuple(extents: &[usize]) -> String {
    match extents {
        [one] => format!("({one},)"),
        extents => {
            let words: Vec<String> = extents.iter().map(ToString::to_string).collect();
            format!("({})", words.join(","))
        }
    }
}

impl ElementFormat {
    /// Returns the format of an element with these fields. An element that NumPy has no simple name
    /// for is plain bytes (`|V8`).
    pub fn of(fields: &[Field], size: usize) -> Self {
        let bytes = || Self { descr: format!("'|V{size}'"), inner: Vec::new() };
        match fields {
            [Field { name, kind }] if name.is_empty() || name.starts_with('[') => {
                match (number(kind), extents(name)) {
                    (Some(kind), Some((_, inner))) => Self { descr: format!("'{kind}'"), inner },
                    _ => bytes(),
                }
            }
            fields => {
                let named = fields.iter().map(|Field { name, kind }| {
                    let (name, inner) = extents(name).filter(|(name, _)| !name.contains('.'))?;
                    let is_plain = name.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'_');
                    let shape = if inner.is_empty() {
                        String::new()
                    } else {
                        format!(",{}", tuple(&inner))
                    };
                    is_plain.then_some(format!("('{name}','{}'{shape})", number(kind)?))
                });
                match named.collect::<Option<Vec<_>>>() {
                    Some(named) => {
                        Self { descr: format!("[{}]", named.join(",")), inner: Vec::new() }
                    }
                    None => bytes(),
                }
            }
        }
    }

    fn shape(&self, shape: &[usize]) -> Vec<usize> {
        shape.iter().chain(&self.inner).copied().collect()
    }
}

/// Returns the header of a file with an array of this shape. The error says why there is none.
pub(super) fn header(format: &ElementFormat, shape: &[usize]) -> Result<Vec<u8>, String> {
    let (descr, shape) = (&format.descr, tuple(&format.shape(shape)));
    let mut text = format!("{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}");
    // The elements begin at a multiple of 64 bytes.
    let len = (MAGIC.len() + 4 + text.len() + 1).next_multiple_of(64);
    text.extend(std::iter::repeat_n(' ', len - (MAGIC.len() + 4 + text.len() + 1)));
    text.push('\n');
    let count = u16::try_from(text.len())
        .map_err(|_| "its elements have too many fields for a header of 64 KiB".to_owned())?;
    let mut header = MAGIC.to_vec();
    header.extend([1, 0]);
    header.extend(count.to_le_bytes());
    header.extend(text.as_bytes());
    Ok(header)
}

/// Checks that a file that begins with these bytes has elements of this format and an array of
/// this shape. Returns the length of its header. The error says how they differ.
pub(super) fn check(
    bytes: &[u8],
    format: &ElementFormat,
    shape: &[usize],
) -> Result<usize, String> {
    let rest = bytes.strip_prefix(MAGIC).ok_or("the file is no .npy file")?;
    let (start, count) = match rest {
        [1, _, a, b, ..] => (MAGIC.len() + 4, usize::from(u16::from_le_bytes([*a, *b]))),
        [2 | 3, _, a, b, c, d, ..] => {
            (MAGIC.len() + 6, u32::from_le_bytes([*a, *b, *c, *d]) as usize)
        }
        _ => return Err("the file is of an unknown version of .npy".to_owned()),
    };
    let text = start.checked_add(count).and_then(|end| bytes.get(start..end));
    let text = text.and_then(|text| std::str::from_utf8(text).ok());
    let text = text.ok_or("the header of the file is cut, too long, or no text")?;
    let words: String = text.chars().filter(|c| !c.is_whitespace()).collect();
    let words = words.replace('"', "'");
    let value = |key: &str| words.split_once(&format!("'{key}':")).map(|(_, rest)| rest);
    let missing = |key: &str| format!("the header of the file has no {key}");
    // An opening bracket closes with its own kind, and no value has both.
    let descr = value("descr").ok_or_else(|| missing("descr"))?;
    let end = match descr.as_bytes().first() {
        Some(b'[') => descr.find("]").map(|at| at + 1),
        _ => descr.get(1..).and_then(|rest| rest.find('\'')).map(|at| at + 2),
    };
    let descr = end.and_then(|end| descr.get(..end)).ok_or_else(|| missing("descr"))?;
    if descr.replace('=', "<") != format.descr {
        let expected = &format.descr;
        return Err(format!("the file has elements of type {descr}, the array has {expected}"));
    }
    let is_fortran = value("fortran_order").is_some_and(|rest| rest.starts_with("True"));
    let found = value("shape").and_then(|rest| rest.strip_prefix('(')?.split_once(')'));
    let (found, _) = found.ok_or_else(|| missing("shape"))?;
    let found: Option<Vec<usize>> =
        found.split(',').filter(|word| !word.is_empty()).map(|word| word.parse().ok()).collect();
    let found = found.ok_or_else(|| missing("shape"))?;
    let expected = format.shape(shape);
    if found != expected {
        return Err(format!(
            "the file has the shape {}, the array has {}",
            tuple(&found),
            tuple(&expected)
        ));
    }
    if is_fortran && found.len() > 1 {
        return Err("the file is in Fortran order: save it with numpy.ascontiguousarray".to_owned());
    }
    Ok(start + count)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(name: &str, kind: &str) -> Field {
        Field { name: name.to_owned(), kind: kind.to_owned() }
    }

    #[test]
    fn elements_have_the_names_of_numpy() {
        let of = |fields: &[Field], size| ElementFormat::of(fields, size);
        let number = of(&[field("", "f64")], 8);
        assert_eq!((number.descr.as_str(), number.inner.len()), ("'<f8'", 0));
        let array = of(&[field("[2][3]", "i16")], 12);
        assert_eq!((array.descr.as_str(), array.inner.as_slice()), ("'<i2'", &[2, 3][..]));
        let pair = of(&[field("x", "f64"), field("v[3]", "f32"), field("n", "i32")], 24);
        assert_eq!(pair.descr, "[('x','<f8'),('v','<f4',(3,)),('n','<i4')]");
        assert_eq!(of(&[field("a.x", "f64"), field("b", "f64")], 16).descr, "'|V16'");
        assert_eq!(of(&[field("", "u128")], 16).descr, "'|V16'");
    }

    #[test]
    fn headers_are_read_as_they_are_written() {
        for (fields, shape) in [
            (vec![field("", "f32")], vec![3, 4]),
            (vec![field("", "bool")], vec![7]),
            (vec![field("[3]", "u64")], vec![2, 0, 5]),
            (vec![field("x", "f64"), field("v[3]", "f32")], vec![1, 2, 3, 4]),
        ] {
            let format = ElementFormat::of(&fields, 20);
            let header = header(&format, &shape).unwrap();
            assert_eq!(header.len() % 64, 0);
            assert_eq!(check(&header, &format, &shape), Ok(header.len()));
            let other = ElementFormat::of(&[field("", "i8")], 1);
            assert!(check(&header, &other, &shape).unwrap_err().contains("elements of type"));
            let why = check(&header, &format, &[9, 9]).unwrap_err();
            assert!(why.contains("the array has (9,9"), "{why}");
            for end in 0..header.len() {
                assert!(check(&header[..end], &format, &shape).is_err(), "{end} bytes");
            }
        }
    }

    #[test]
    fn headers_of_other_programs_are_understood() {
        let format = ElementFormat::of(&[field("", "f64")], 8);
        let file = |version: u8, text: &str| {
            let mut bytes = MAGIC.to_vec();
            bytes.extend([version, 0]);
            match version {
                1 => bytes.extend((text.len() as u16).to_le_bytes()),
                _ => bytes.extend((text.len() as u32).to_le_bytes()),
            }
            bytes.extend(text.as_bytes());
            bytes
        };
        let text = "{\"shape\": (2, 3), \"fortran_order\": False, \"descr\": \"<f8\"}\n";
        assert_eq!(check(&file(1, text), &format, &[2, 3]), Ok(10 + text.len()));
        assert_eq!(check(&file(2, text), &format, &[2, 3]), Ok(12 + text.len()));
        for (text, why) in [
            ("{'descr': '>f8', 'fortran_order': False, 'shape': (2, 3), }", "'>f8'"),
            ("{'descr': '<f8', 'fortran_order': True, 'shape': (2, 3), }", "Fortran"),
            ("{'descr': '<f8', 'fortran_order': False, 'shape': (2, x), }", "no shape"),
            ("{'fortran_order': False, 'shape': (2, 3), }", "no descr"),
            ("", "no descr"),
        ] {
            let refused = check(&file(1, text), &format, &[2, 3]).unwrap_err();
            assert!(refused.contains(why), "{text}: {refused}");
        }
        assert!(check(b"no file", &format, &[1]).unwrap_err().contains("no .npy"));
        assert!(check(&file(9, text), &format, &[1]).unwrap_err().contains("version"));
    }
}
