//! Functions of the header, from the rows of `functions!` in `bindings/c`.

use proc_macro2::TokenStream;
use quote::quote;
use std::collections::HashMap;
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::visit_mut::{VisitMut, visit_type_mut};
use syn::{Attribute, Expr, Fields, GenericArgument, Ident, Item, PathArguments, Token, Type};

/// Maximum width of a line of documentation.
const WIDTH: usize = 96;

/// A row: documentation, name, arguments, and the place of the result.
struct Row {
    documentation: Vec<Attribute>,
    name: Ident,
    arguments: Punctuated<Argument, Token![,]>,
    result: Option<Argument>,
}

/// Argument of a row, with those in brackets behind it.
struct Argument {
    name: Ident,
    extra: Vec<Ident>,
    kind: Type,
}

impl Parse for Argument {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let name = input.parse()?;
        let mut extra = Vec::new();
        if input.peek(syn::token::Bracket) {
            let names;
            syn::bracketed!(names in input);
            extra = Punctuated::<Ident, Token![,]>::parse_terminated(&names)?.into_iter().collect();
        }
        input.parse::<Token![:]>()?;
        Ok(Self { name, extra, kind: input.parse()? })
    }
}

impl Parse for Row {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let documentation = input.call(Attribute::parse_outer)?;
        let name = input.parse()?;
        let arguments;
        syn::parenthesized!(arguments in input);
        let arguments = Punctuated::parse_terminated(&arguments)?;
        let result = match input.parse::<Option<Token![->]>>()? {
            Some(_) => Some(input.parse()?),
            None => None,
        };
        input.parse::<Token![=]>()?;
        input.parse::<Expr>()?;
        input.parse::<Token![;]>()?;
        Ok(Self { documentation, name, arguments, result })
    }
}

struct Rows(Vec<Row>);

impl Parse for Rows {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let mut rows = Vec::new();
        while !input.is_empty() {
            rows.push(input.parse()?);
        }
        Ok(Self(rows))
    }
}

/// Types of `bindings/c` that the header does not name.
pub struct Types {
    /// Type that a transparent type wraps, and the name of its parameter.
    wrapped: HashMap<String, (Type, Option<String>)>,
    /// Type of the arguments in brackets, where it is not `usize`.
    extra: HashMap<String, Type>,
}

impl Types {
    /// Collects the types of the modules.
    pub fn of<'f>(files: impl Iterator<Item = &'f syn::File>) -> Self {
        let mut types = Self { wrapped: HashMap::new(), extra: HashMap::new() };
        for item in files.flat_map(|file| &file.items) {
            types.add(item);
        }
        types
    }

    fn add(&mut self, item: &Item) {
        match item {
            Item::Struct(item) if is_transparent(&item.attrs) => {
                let Fields::Unnamed(fields) = &item.fields else { return };
                let Some(field) = fields.unnamed.first() else { return };
                let parameter = item.generics.type_params().next();
                let parameter = parameter.map(|parameter| parameter.ident.to_string());
                self.wrapped.insert(item.ident.to_string(), (field.ty.clone(), parameter));
            }
            Item::Impl(item)
                if item.trait_.as_ref().is_some_and(|(_, path, _)| path.is_ident("Argument")) =>
            {
                for part in &item.items {
                    if let (syn::ImplItem::Type(part), Some(name)) = (part, name_of(&item.self_ty))
                    {
                        self.extra.insert(name, part.ty.clone());
                    }
                }
            }
            _ => {}
        }
    }

    /// Puts functions in the place of rows.
    pub fn expand(&self, file: &mut syn::File) -> syn::Result<()> {
        let mut items = Vec::new();
        for item in file.items.drain(..) {
            match item {
                Item::Macro(call) if call.mac.path.is_ident("functions") => {
                    for row in call.mac.parse_body::<Rows>()?.0 {
                        items.push(syn::parse2(self.function(row))?);
                    }
                }
                // Nothing in the header names it.
                Item::Struct(item) if is_transparent(&item.attrs) => {}
                mut other => {
                    Unwrap(self).visit_item_mut(&mut other);
                    items.push(other);
                }
            }
        }
        file.items = items;
        Ok(())
    }

    fn function(&self, row: Row) -> TokenStream {
        let Row { documentation, name, arguments, result } = row;
        let documentation = wrap(&documentation);
        let mut all = Vec::new();
        for Argument { name, extra, mut kind } in arguments.into_iter().chain(result) {
            let extra_kind = name_of(&kind).and_then(|name| self.extra.get(&name).cloned());
            let extra_kind = extra_kind.unwrap_or_else(|| syn::parse_quote!(usize));
            Unwrap(self).visit_type_mut(&mut kind);
            all.push(quote!(#name: #kind));
            all.extend(extra.iter().map(|name| quote!(#name: #extra_kind)));
        }
        quote! {
            #(#[doc = #documentation])*
            #[unsafe(no_mangle)]
            pub extern "C" fn #name(#(#all),*) -> oik_status {}
        }
    }
}

/// Replaces transparent types by what they wrap.
struct Unwrap<'t>(&'t Types);

impl VisitMut for Unwrap<'_> {
    fn visit_type_mut(&mut self, kind: &mut Type) {
        visit_type_mut(self, kind);
        let Some((wrapped, parameter)) = name_of(kind).and_then(|name| self.0.wrapped.get(&name))
        else {
            return;
        };
        let mut wrapped = wrapped.clone();
        if let (Some(parameter), Some(given)) = (parameter, argument_of(kind)) {
            Substitute(parameter, given).visit_type_mut(&mut wrapped);
        }
        *kind = wrapped;
        self.visit_type_mut(kind);
    }
}

/// Puts a type in the place of a parameter.
struct Substitute<'t>(&'t str, Type);

impl VisitMut for Substitute<'_> {
    fn visit_type_mut(&mut self, kind: &mut Type) {
        if name_of(kind).is_some_and(|name| name == self.0) {
            *kind = self.1.clone();
        } else {
            visit_type_mut(self, kind);
        }
    }
}

fn name_of(kind: &Type) -> Option<String> {
    let Type::Path(path) = kind else { return None };
    Some(path.path.segments.last()?.ident.to_string())
}

fn argument_of(kind: &Type) -> Option<Type> {
    let Type::Path(path) = kind else { return None };
    let PathArguments::AngleBracketed(arguments) = &path.path.segments.last()?.arguments else {
        return None;
    };
    match arguments.args.first()? {
        GenericArgument::Type(given) => Some(given.clone()),
        _ => None,
    }
}

fn is_transparent(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("repr")
            && attribute.parse_args::<Ident>().is_ok_and(|kind| kind == "transparent")
    })
}

/// Returns lines of documentation, filled to the width of the header.
fn wrap(documentation: &[Attribute]) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for attribute in documentation {
        let syn::Meta::NameValue(text) = &attribute.meta else { continue };
        let Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) = &text.value else {
            continue;
        };
        let text = text.value();
        if text.trim().is_empty() {
            lines.push(String::new());
            lines.push(String::new());
        }
        for word in text.split_whitespace() {
            match lines.last_mut() {
                Some(line) if line.chars().count() + word.chars().count() <= WIDTH => {
                    line.push(' ');
                    line.push_str(word);
                }
                _ => lines.push(format!(" {word}")),
            }
        }
    }
    lines
}
