//! Headers of `.npy` files, the format of NumPy (NEP 1). A header is a dictionary of Python.

use super::element::{Segment, segments};
use crate::tables::element_kind::numpy_of;
use oikaze_protocol::coherence::Field;
use std::fmt;
use std::iter::Peekable;
use std::str::Chars;

const MAGIC: &[u8; 6] = b"\x93NUMPY";

/// Maximum length of a header that is read or written, in bytes.
pub(super) const HEADER_MAX: usize = 1 << 20;

/// Maximum depth of structures within structures in a header that is read.
const DEPTH_MAX: usize = 32;

/// Element of an array in the words of NumPy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ElementFormat {
    descr: Descr,
    /// Axes that follow those of the array, if an element is a fixed array.
    inner: Vec<usize>,
}

/// Value of `descr`: NumPy's name of a type, or fields in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Descr {
    Plain(String),
    Fields(Vec<NamedField>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct NamedField {
    name: String,
    descr: Descr,
    shape: Vec<usize>,
}

impl Descr {
    /// Returns the value for fields of these paths and kinds, or `None` if NumPy has none.
    fn of(fields: &[(&[Segment], &str)]) -> Option<Self> {
        if let [([], kind)] = fields {
            return numpy_of(kind).map(|name| Self::Plain(name.to_owned()));
        }
        let mut named: Vec<NamedField> = Vec::new();
        for group in fields.chunk_by(|(one, _), (next, _)| one.first() == next.first()) {
            let ((name, shape), _) = group.first().and_then(|(path, _)| path.split_first())?;
            if name.is_empty() || named.iter().any(|field| field.name == *name) {
                return None;
            }
            let inner: Option<Vec<_>> =
                group.iter().map(|(path, kind)| Some((path.get(1..)?, *kind))).collect();
            let (name, shape) = (name.clone(), shape.clone());
            named.push(NamedField { name, descr: Self::of(&inner?)?, shape });
        }
        Some(Self::Fields(named))
    }

    /// Returns what a file says.
    fn read(value: &Value) -> Option<Self> {
        match value {
            Value::Text(name) => Some(Self::Plain(name.replace('=', "<"))),
            Value::List(fields) => {
                let field = |field: &Value| {
                    let Value::Tuple(parts) = field else { return None };
                    let (name, descr, shape) = match parts.as_slice() {
                        [name, descr] => (name, descr, Vec::new()),
                        [name, descr, shape] => (name, descr, shape.extents()?),
                        _ => return None,
                    };
                    let name = match name {
                        Value::Text(name) => name.clone(),
                        // A title stands before the name. It is not a name, and is kept as text.
                        other => other.to_string(),
                    };
                    Some(NamedField { name, descr: Self::read(descr)?, shape })
                };
                fields.iter().map(field).collect::<Option<_>>().map(Self::Fields)
            }
            _ => None,
        }
    }
}

impl fmt::Display for Descr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fields = match self {
            Self::Plain(name) => return f.write_str(&quoted(name)),
            Self::Fields(fields) => fields.iter().map(|NamedField { name, descr, shape }| {
                let shape =
                    if shape.is_empty() { String::new() } else { format!(",{}", tuple(shape)) };
                format!("({},{descr}{shape})", quoted(name))
            }),
        };
        write!(f, "[{}]", fields.collect::<Vec<_>>().join(","))
    }
}

/// Returns a text as Python writes it.
fn quoted(text: &str) -> String {
    let mut out = String::from("'");
    for c in text.chars() {
        match c {
            '\\' | '\'' => out.extend(['\\', c]),
            c if c.is_ascii_control() => out.push_str(&format!("\\x{:02x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('\'');
    out
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
    /// Returns the format of an element with these fields. An element that NumPy has no name for,
    /// such as a number of 128 bits, is plain bytes (`|V16`).
    pub fn of(fields: &[Field], size: usize) -> Self {
        Self::of_fields(fields)
            .unwrap_or_else(|| Self { descr: Descr::Plain(format!("|V{size}")), inner: Vec::new() })
    }

    fn of_fields(fields: &[Field]) -> Option<Self> {
        let paths: Vec<_> =
            fields.iter().map(|field| segments(&field.name)).collect::<Option<_>>()?;
        let inner = paths.first()?.first()?.1.clone();
        let rest = paths.iter().zip(fields).map(|(path, field)| {
            let (element, rest) = path.split_first()?;
            (element.1 == inner).then_some((rest, field.kind.as_str()))
        });
        let descr = Descr::of(&rest.collect::<Option<Vec<_>>>()?)?;
        Some(Self { descr, inner })
    }

    fn shape(&self, shape: &[usize]) -> Vec<usize> {
        shape.iter().chain(&self.inner).copied().collect()
    }
}

/// Returns the header of a file with an array of this shape. The error says why there is none.
///
/// Its version is 1.0, unless the names of fields need more: 2.0 is longer, and 3.0 is UTF-8.
pub(super) fn header(format: &ElementFormat, shape: &[usize]) -> Result<Vec<u8>, String> {
    let (descr, shape) = (&format.descr, tuple(&format.shape(shape)));
    let mut text = format!("{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}");
    let fits_first = text.len() + 64 < usize::from(u16::MAX);
    let (version, start) = match (text.is_ascii(), fits_first) {
        (true, true) => (1, MAGIC.len() + 4),
        (true, false) => (2, MAGIC.len() + 6),
        (false, _) => (3, MAGIC.len() + 6),
    };
    // The elements begin at a multiple of 64 bytes.
    let len = (start + text.len() + 1).next_multiple_of(64);
    if len > HEADER_MAX {
        return Err("its elements have too many fields for a header of 1 MiB; save parts of \
                    them, or under a name that does not end in .npy"
            .to_owned());
    }
    text.extend(std::iter::repeat_n(' ', len - (start + text.len() + 1)));
    text.push('\n');
    let count = (text.len() as u32).to_le_bytes();
    let mut header = MAGIC.to_vec();
    header.extend([version, 0]);
    header.extend(count.iter().take(if version == 1 { 2 } else { 4 }));
    header.extend(text.as_bytes());
    Ok(header)
}

/// Value in a header, as Python writes it.
#[derive(Debug)]
enum Value {
    Text(String),
    /// A number, or a word such as `False`.
    Word(String),
    List(Vec<Value>),
    Tuple(Vec<Value>),
    Dictionary(Vec<(Value, Value)>),
}

impl Value {
    fn extent(&self) -> Option<usize> {
        // Python 2 wrote an L behind a long number.
        if let Self::Word(word) = self { word.trim_end_matches('L').parse().ok() } else { None }
    }

    /// Returns the extents of a shape: a tuple, or one number.
    fn extents(&self) -> Option<Vec<usize>> {
        match self {
            Self::Tuple(extents) => extents.iter().map(Self::extent).collect(),
            one => one.extent().map(|extent| vec![extent]),
        }
    }

    fn get(&self, key: &str) -> Option<&Value> {
        let Self::Dictionary(entries) = self else { return None };
        let is_key = |found: &Value| matches!(found, Self::Text(text) if text == key);
        entries.iter().find(|(found, _)| is_key(found)).map(|(_, value)| value)
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all =
            |values: &[Value]| values.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        match self {
            Self::Text(text) => f.write_str(&quoted(text)),
            Self::Word(word) => f.write_str(word),
            Self::List(values) => write!(f, "[{}]", all(values)),
            Self::Tuple(values) => write!(f, "({})", all(values)),
            Self::Dictionary(_) => f.write_str("{...}"),
        }
    }
}

/// Reads values in the words of Python.
struct HeaderReader<'t> {
    chars: Peekable<Chars<'t>>,
}

impl HeaderReader<'_> {
    fn skip(&mut self) {
        while self.chars.next_if(|c| c.is_whitespace()).is_some() {}
    }

    /// Takes a character, after blanks, if it is the next.
    fn take(&mut self, wanted: char) -> bool {
        self.skip();
        self.chars.next_if_eq(&wanted).is_some()
    }

    fn value(&mut self, depth: usize) -> Option<Value> {
        let depth = depth.checked_sub(1)?;
        self.skip();
        match *self.chars.peek()? {
            quote @ ('\'' | '"') => {
                self.chars.next();
                self.text(quote).map(Value::Text)
            }
            '[' => {
                self.chars.next();
                self.values(']', depth).map(|(values, _)| Value::List(values))
            }
            '(' => {
                self.chars.next();
                let (mut values, commas) = self.values(')', depth)?;
                // Brackets around one value mean nothing.
                if values.len() == 1 && !commas { values.pop() } else { Some(Value::Tuple(values)) }
            }
            '{' => {
                self.chars.next();
                let mut entries = Vec::new();
                while !self.take('}') {
                    let key = self.value(depth)?;
                    if !self.take(':') {
                        return None;
                    }
                    entries.push((key, self.value(depth)?));
                    if !self.take(',') && self.chars.peek() != Some(&'}') {
                        return None;
                    }
                }
                Some(Value::Dictionary(entries))
            }
            _ => {
                let mut word = String::new();
                let is_part = |c: &char| c.is_alphanumeric() || matches!(c, '_' | '.' | '-' | '+');
                while let Some(c) = self.chars.next_if(is_part) {
                    word.push(c);
                }
                if word.is_empty() { None } else { Some(Value::Word(word)) }
            }
        }
    }

    /// Reads values up to the bracket that closes, and whether a comma stands among them.
    fn values(&mut self, close: char, depth: usize) -> Option<(Vec<Value>, bool)> {
        let (mut values, mut commas) = (Vec::new(), false);
        while !self.take(close) {
            values.push(self.value(depth)?);
            let comma = self.take(',');
            commas |= comma;
            if !comma && self.chars.peek() != Some(&close) {
                return None;
            }
        }
        Some((values, commas))
    }

    /// Reads the rest of a text, after the quotation mark.
    fn text(&mut self, quote: char) -> Option<String> {
        let mut text = String::new();
        loop {
            match self.chars.next()? {
                c if c == quote => return Some(text),
                '\\' => match self.chars.next()? {
                    'n' => text.push('\n'),
                    'r' => text.push('\r'),
                    't' => text.push('\t'),
                    'x' => text.push(self.code(2)?),
                    'u' => text.push(self.code(4)?),
                    'U' => text.push(self.code(8)?),
                    c @ ('\\' | '\'' | '"') => text.push(c),
                    c => text.extend(['\\', c]),
                },
                c => text.push(c),
            }
        }
    }

    /// Reads the character of so many hexadecimal digits.
    fn code(&mut self, digits: usize) -> Option<char> {
        let digits: String = self.chars.by_ref().take(digits).collect();
        u32::from_str_radix(&digits, 16).ok().and_then(char::from_u32)
    }
}

/// Checks that a file that begins with these bytes has elements of this format and an array of
/// this shape. Returns the length of its header. The error says how they differ.
pub(super) fn check(
    bytes: &[u8],
    format: &ElementFormat,
    shape: &[usize],
) -> Result<usize, String> {
    let rest = bytes.strip_prefix(MAGIC).ok_or("the file is not an .npy file")?;
    let (is_utf8, start, count) = match rest {
        [1, _, a, b, ..] => (false, MAGIC.len() + 4, usize::from(u16::from_le_bytes([*a, *b]))),
        [version @ (2 | 3), _, a, b, c, d, ..] => {
            (*version == 3, MAGIC.len() + 6, u32::from_le_bytes([*a, *b, *c, *d]) as usize)
        }
        _ => return Err("the file is of an unknown version of .npy".to_owned()),
    };
    let text = start.checked_add(count).and_then(|end| bytes.get(start..end));
    let text = text.and_then(|text| match is_utf8 {
        true => String::from_utf8(text.to_vec()).ok(),
        // Versions 1.0 and 2.0 are Latin-1, whose bytes are code points.
        false => Some(text.iter().map(|byte| char::from(*byte)).collect()),
    });
    let text = text.ok_or("the header of the file is cut, longer than 1 MiB, or no text")?;
    let header = HeaderReader { chars: text.chars().peekable() }.value(DEPTH_MAX);
    let value = |key: &str| header.as_ref().and_then(|header| header.get(key));
    let missing = |key: &str| format!("the header of the file has no {key}");
    let descr = value("descr").ok_or_else(|| missing("descr"))?;
    if Descr::read(descr).as_ref() != Some(&format.descr) {
        let expected = &format.descr;
        return Err(format!("the file has elements of type {descr}, the array has {expected}"));
    }
    let is_fortran = matches!(value("fortran_order"), Some(Value::Word(word)) if word == "True");
    let found = value("shape").and_then(Value::extents).ok_or_else(|| missing("shape"))?;
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
        assert_eq!((number.descr.to_string().as_str(), number.inner.len()), ("'<f8'", 0));
        let array = of(&[field("[2][3]", "i16")], 12);
        assert_eq!(array.descr.to_string(), "'<i2'");
        assert_eq!(array.inner, [2, 3]);
        let pair = of(&[field("x", "f64"), field("v[3]", "f32"), field("n", "i32")], 24);
        assert_eq!(pair.descr.to_string(), "[('x','<f8'),('v','<f4',(3,)),('n','<i4')]");
        let nested = of(&[field("a.x", "f64"), field("a.y[2]", "i8"), field("b[4].c", "f32")], 26);
        let expected = "[('a',[('x','<f8'),('y','|i1',(2,))]),('b',[('c','<f4')],(4,))]";
        assert_eq!(nested.descr.to_string(), expected);
        let structures = of(&[field("[3].x", "f64"), field("[3].y", "f64")], 48);
        assert_eq!(structures.descr.to_string(), "[('x','<f8'),('y','<f8')]");
        assert_eq!(structures.inner, [3]);
        assert_eq!(of(&[field("", "u128")], 16).descr.to_string(), "'|V16'");
        assert_eq!(of(&[field("a", "u8"), field("a", "u8")], 2).descr.to_string(), "'|V2'");
        assert_eq!(of(&[field("a[x]", "u8")], 1).descr.to_string(), "'|V1'");
    }

    #[test]
    fn names_with_signs_of_python_come_back() {
        for (path, name) in [
            ("a b", "a b"),
            ("größe", "größe"),
            ("数", "数"),
            (r#"it's \\ "quoted""#, r#"it's \ "quoted""#),
            (r"a\.b", "a.b"),
            (r"v\[3\]", "v[3]"),
            ("tab\tline\n", "tab\tline\n"),
            ("{'shape': (9,), }", "{'shape': (9,), }"),
        ] {
            let format = ElementFormat::of(&[field(path, "f64"), field("c[2]", "i32")], 16);
            let Descr::Fields(fields) = &format.descr else { panic!("{path} has no name") };
            assert_eq!(fields.first().map(|field| field.name.as_str()), Some(name));
            let header = header(&format, &[7]).unwrap();
            assert_eq!(header.get(6), Some(&if path.is_ascii() { 1 } else { 3 }), "{path}");
            assert_eq!(check(&header, &format, &[7]), Ok(header.len()), "{path}");
            let other = ElementFormat::of(&[field("other", "f64"), field("c[2]", "i32")], 16);
            assert!(check(&header, &other, &[7]).is_err(), "{path}");
        }
    }

    #[test]
    fn long_headers_have_a_version_of_their_own() {
        let fields: Vec<Field> =
            (0..5000).map(|number| field(&format!("field{number}"), "f64")).collect();
        let format = ElementFormat::of(&fields, 40_000);
        let long = header(&format, &[3]).unwrap();
        assert_eq!((long.get(6), long.len() % 64), (Some(&2), 0));
        assert_eq!(check(&long, &format, &[3]), Ok(long.len()));
        let name = "n".repeat(HEADER_MAX);
        let why = header(&ElementFormat::of(&[field(&name, "f64"), field("b", "f64")], 16), &[3]);
        assert!(why.unwrap_err().contains("1 MiB"));
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
        let latin =
            "{'descr': [('gr\u{f6}\u{df}e', '<f8')], 'fortran_order': False, 'shape': (2L,), }";
        let latin_bytes: Vec<u8> = latin.chars().map(|c| c as u8).collect();
        let mut bytes = [&MAGIC[..], &[1, 0], &(latin_bytes.len() as u16).to_le_bytes()].concat();
        bytes.extend(&latin_bytes);
        let named = ElementFormat::of(&[field("größe", "f64")], 8);
        assert_eq!(check(&bytes, &named, &[2]), Ok(bytes.len()));
        let deep = format!("{}1{}", "[".repeat(1000), "]".repeat(1000));
        assert!(check(&file(1, &deep), &format, &[1]).is_err());
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
        assert!(check(b"no file", &format, &[1]).unwrap_err().contains("not an .npy"));
        assert!(check(&file(9, text), &format, &[1]).unwrap_err().contains("version"));
    }
}
