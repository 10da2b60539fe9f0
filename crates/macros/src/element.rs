//! `#[derive(Element)]`: checks that a struct can be an element of a shared array.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{Data, DeriveInput, Error, Fields, Type};

/// Returns the implementation of the traits of an element.
pub fn expand(input: &DeriveInput) -> syn::Result<TokenStream> {
    let name = &input.ident;
    let Data::Struct(data) = &input.data else {
        return Err(Error::new(
            name.span(),
            "an element of a shared array is a struct: an enum or a union allows bytes that are not \
             a value, and other nodes may write any bytes",
        ));
    };
    if !input.generics.params.is_empty() {
        return Err(Error::new(
            input.generics.span(),
            "an element of a shared array has no type parameters, because its padding is checked \
             for one type: write a struct for each type that you need",
        ));
    }
    if !is_repr_c(input)? {
        return Err(Error::new(
            name.span(),
            "write #[repr(C)] before the struct: without it, the order of the fields may differ \
             between builds, and so between nodes",
        ));
    }
    if matches!(data.fields, Fields::Unit) || data.fields.is_empty() {
        return Err(Error::new(name.span(), "an element of a shared array has at least one field"));
    }
    let (mut kinds, mut names) = (Vec::new(), Vec::new());
    for (number, field) in data.fields.iter().enumerate() {
        refuse_field(&field.ty)?;
        kinds.push(&field.ty);
        names.push(
            field
                .ident
                .as_ref()
                .map_or_else(|| number.to_string(), |name| name.unraw().to_string()),
        );
    }
    let checks = kinds.iter().map(|kind| {
        quote_spanned! { kind.span() => ::oikaze::shared::derive::is_field::<#kind>(); }
    });
    let padded = format!(
        "struct `{name}` has padding, whose bytes would differ between nodes: order its fields by \
         size, largest first, or add a field for the padding"
    );
    Ok(quote! {
        const _: () = {
            #(#checks)*
            assert!(
                ::core::mem::size_of::<#name>() == 0 #(+ ::core::mem::size_of::<#kinds>())*,
                #padded
            );
        };
        // SAFETY: the checks above have shown that all fields take any bits, that they have no
        // references (`Pod` is `'static` and `Copy`), and that there is no padding.
        unsafe impl ::oikaze::shared::derive::Zeroable for #name {}
        // SAFETY: as above.
        unsafe impl ::oikaze::shared::derive::Pod for #name {}
        impl ::oikaze::shared::derive::Element for #name {
            fn describe(
                path: &str,
                fields: &mut ::std::vec::Vec<::oikaze::shared::derive::ElementField>,
            ) {
                #(<#kinds as ::oikaze::shared::derive::Element>::describe(
                    &::oikaze::shared::derive::path(path, #names),
                    fields,
                );)*
            }
        }
    })
}

fn is_repr_c(input: &DeriveInput) -> syn::Result<bool> {
    let mut found = false;
    for attribute in input.attrs.iter().filter(|attribute| attribute.path().is_ident("repr")) {
        attribute.parse_nested_meta(|meta| {
            found |= meta.path.is_ident("C") || meta.path.is_ident("transparent");
            if meta.input.peek(syn::token::Paren) {
                let inside;
                syn::parenthesized!(inside in meta.input);
                inside.parse::<TokenStream>()?;
            }
            Ok(())
        })?;
    }
    Ok(found)
}

/// Refuses types whose error would be hard to read otherwise.
fn refuse_field(kind: &Type) -> syn::Result<()> {
    let refuse = |why: &str| Err(Error::new(kind.span(), why));
    match kind {
        Type::Reference(_) | Type::Ptr(_) | Type::BareFn(_) => refuse(
            "an element of a shared array holds no references or pointers, because an address of \
             one node means nothing on another one: store an index",
        ),
        Type::Path(path) if path.path.is_ident("bool") => {
            refuse("a field of an element is not a `bool`, because not every byte is one: use `u8`")
        }
        Type::Path(path) if path.path.is_ident("char") => refuse(
            "a field of an element is not a `char`, because not every number is one: use `u32`",
        ),
        Type::Array(array) => refuse_field(&array.elem),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(text: &str) -> Result<String, String> {
        let input = syn::parse_str(text).map_err(|why| why.to_string())?;
        let made = expand(&input).map_err(|why| why.to_string())?;
        Ok(made.to_string().split_whitespace().collect())
    }

    #[test]
    fn fields_are_checked_and_described() {
        let text = made("#[repr(C)] struct P { x: f64, v: [f32; 2] }").unwrap();
        assert!(text.contains("is_field::<[f32;2]>"), "{text}");
        assert!(text.contains("size_of::<f64>()+::core::mem::size_of::<[f32;2]>()"), "{text}");
        assert!(text.contains("path(path,\"x\")") && text.contains("path(path,\"v\")"), "{text}");
        assert!(
            made("#[repr(C)] struct P { r#type: u8 }").unwrap().contains("path(path,\"type\")")
        );
        assert!(made("#[repr(transparent)] struct P(u64);").unwrap().contains("path(path,\"0\")"));
        assert!(made("#[repr(C, align(16))] struct P(u64, u64);").is_ok());
    }

    #[test]
    fn structs_that_cannot_be_elements_are_refused() {
        for (text, why) in [
            ("enum E { A }", "is a struct"),
            ("#[repr(C)] struct P<T> { x: T }", "no type parameters"),
            ("struct P { x: f64 }", "#[repr(C)]"),
            ("#[repr(align(8))] struct P { x: f64 }", "#[repr(C)]"),
            ("#[repr(C)] struct P;", "at least one field"),
            ("#[repr(C)] struct P { x: &'static u8 }", "no references"),
            ("#[repr(C)] struct P { x: [*const u8; 2] }", "no references"),
            ("#[repr(C)] struct P { x: bool }", "use `u8`"),
            ("#[repr(C)] struct P { x: char }", "use `u32`"),
        ] {
            let refused = made(text).unwrap_err();
            assert!(refused.contains(why), "{text}: {refused}");
        }
    }
}
