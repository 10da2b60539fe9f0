//! Text of tokens, as a reader of Rust writes it.

use proc_macro2::{Delimiter, Spacing, TokenStream, TokenTree};
use quote::ToTokens;

/// Returns the text of a part of the syntax.
pub fn text(part: &impl ToTokens) -> String {
    let mut text = String::new();
    write(part.to_token_stream(), &mut text);
    text
}

fn write(tokens: TokenStream, text: &mut String) {
    let mut is_joint = false;
    for token in tokens {
        match token {
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    Delimiter::Parenthesis => ("(", ")"),
                    Delimiter::Bracket => ("[", "]"),
                    Delimiter::Brace => (" { ", " }"),
                    Delimiter::None => ("", ""),
                };
                let is_slice = group.delimiter() == Delimiter::Bracket;
                if is_slice && text.ends_with(char::is_alphanumeric) {
                    text.push(' ');
                }
                text.push_str(open);
                let start = text.len();
                write(group.stream(), text);
                while text.len() > start && text.ends_with([',', ' ']) {
                    text.pop();
                }
                text.push_str(close);
                is_joint = false;
            }
            TokenTree::Punct(punct) => {
                let sign = punct.as_char();
                if matches!(sign, '-' | '=' | '+' | '|') && !is_joint && !text.ends_with(' ') {
                    text.push(' ');
                }
                text.push(sign);
                let is_last = punct.spacing() == Spacing::Alone;
                let is_path = text.ends_with("::");
                let is_spaced = matches!(sign, ',' | '=' | '+' | '|') || text.ends_with("->");
                if is_last && (is_spaced || sign == ':' && !is_path) {
                    text.push(' ');
                }
                is_joint = !is_last;
            }
            token => {
                if text.ends_with(|last: char| last.is_alphanumeric() || "_)]".contains(last)) {
                    text.push(' ');
                }
                text.push_str(&token.to_string());
                is_joint = false;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::text;

    #[test]
    fn signature_reads_as_in_a_source() {
        let source = "fn put<'a, T: Pod + 'static>(&self, to: &'a mut [T], f: impl Fn(u8) -> u8,) \
                      -> Result<Vec<u8>, a::B>";
        let signature: syn::Signature = syn::parse_str(source).unwrap();
        assert_eq!(text(&signature), source.replace(",)", ")"));
    }
}
