//! The macros of Oikaze. Programs use them as `oikaze::main` and `oikaze::Element`.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod element;

use proc_macro2::TokenStream;
use quote::quote;
use syn::parse::{Parse, ParseStream};
use syn::spanned::Spanned;
use syn::{Error, Ident, ItemFn, LitInt, ReturnType, Token};

/// Maximum number of nodes of a job, as in `oikaze_protocol::limits`.
const NODES_MAX: u32 = 4096;

/// Makes the program's `main` a function of its job.
///
/// The function takes the job as `&Job`. It returns nothing or a `Result<(), E>`, where `E` is
/// [`oikaze::Error`], `Box<dyn Error>` or any other error. The program joins its job, runs the
/// function and leaves. An error ends the job for all nodes and is printed first, as `oikaze::run`
/// says.
///
/// With `nodes = N`, a program that no launcher has started becomes N processes, as `oikaze::local`
/// says. The variable `OIKAZE_LOCAL` gives another number.
///
/// [`oikaze::Error`]: https://docs.rs/oikaze
#[proc_macro_attribute]
pub fn main(
    arguments: proc_macro::TokenStream,
    item: proc_macro::TokenStream,
) -> proc_macro::TokenStream {
    let made = syn::parse(arguments)
        .and_then(|nodes: Nodes| Ok((nodes, syn::parse::<ItemFn>(item)?)))
        .and_then(|(nodes, function)| expand(nodes, &function));
    made.unwrap_or_else(Error::into_compile_error).into()
}

/// Makes a struct an element of shared arrays.
///
/// The struct is `Copy` and `#[repr(C)]`. It has no padding, and its fields are elements other than
/// `bool`. The macro also implements `Zeroable` and `Pod` of `bytemuck`.
#[proc_macro_derive(Element)]
pub fn element(item: proc_macro::TokenStream) -> proc_macro::TokenStream {
    let made = syn::parse(item).and_then(|input| element::expand(&input));
    made.unwrap_or_else(Error::into_compile_error).into()
}

/// Number of nodes in the arguments: `nodes = 4`, or none.
struct Nodes(Option<u32>);

impl Parse for Nodes {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        if input.is_empty() {
            return Ok(Nodes(None));
        }
        let name: Ident = input.parse()?;
        if name != "nodes" {
            return Err(Error::new(
                name.span(),
                "unknown argument; write #[oikaze::main(nodes = 4)] or #[oikaze::main]",
            ));
        }
        input.parse::<Token![=]>()?;
        let number: LitInt = input.parse()?;
        let _: Option<Token![,]> = input.parse()?;
        if !input.is_empty() {
            return Err(input.error("unknown argument; only `nodes` can be given"));
        }
        match number.base10_parse() {
            Ok(nodes @ 1..=NODES_MAX) => Ok(Nodes(Some(nodes))),
            _ => Err(Error::new(number.span(), "a job has 1 to 4096 nodes")),
        }
    }
}

fn expand(Nodes(nodes): Nodes, function: &ItemFn) -> syn::Result<TokenStream> {
    let signature = &function.sig;
    let refuse = |span, why: &str| Err(Error::new(span, why));
    if signature.ident != "main" {
        return refuse(signature.ident.span(), "#[oikaze::main] stands before `fn main`");
    }
    if let Some(word) = &signature.asyncness {
        return refuse(
            word.span(),
            "`main` is not async; wait for operations by `wait()`, or start a runtime inside",
        );
    }
    if signature.inputs.len() != 1 {
        return refuse(
            signature.paren_token.span.join(),
            "`main` takes the job: fn main(job: &oikaze::Job) -> oikaze::Result<()>",
        );
    }
    let call = match signature.output {
        ReturnType::Default => quote! { main(job); ::core::result::Result::Ok(()) },
        ReturnType::Type(..) => quote! {
            ::core::result::Result::map_err(main(job), ::core::convert::Into::into)
        },
    };
    let start = match nodes {
        Some(nodes) => quote! { ::oikaze::local(#nodes, |job| { #call }) },
        None => quote! { ::oikaze::run(|job| { #call }) },
    };
    Ok(quote! {
        fn main() -> ::std::process::ExitCode {
            #function
            #start
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(arguments: &str, function: &str) -> Result<String, String> {
        let nodes = syn::parse_str::<Nodes>(arguments).map_err(|why| why.to_string())?;
        let function = syn::parse_str(function).map_err(|why| why.to_string())?;
        let made = expand(nodes, &function).map_err(|why| why.to_string())?;
        Ok(made.to_string().split_whitespace().collect())
    }

    #[test]
    fn main_joins_or_becomes_that_many_processes() {
        let one = made("", "fn main(job: &Job) -> Result<()> { job.barrier() }").unwrap();
        assert!(one.contains("::oikaze::run(") && one.contains("map_err(main(job)"), "{one}");
        for arguments in ["nodes = 4", "nodes = 4,"] {
            let four = made(arguments, "fn main(job: &Job) {}").unwrap();
            assert!(four.contains("::oikaze::local(4u32,"), "{four}");
            assert!(four.contains("main(job);"), "{four}");
        }
    }

    #[test]
    fn mistakes_are_named() {
        let good = "fn main(job: &Job) {}";
        for (arguments, function, why) in [
            ("nodes = 0", good, "1 to 4096"),
            ("nodes = -1", good, "1 to 4096"),
            ("nodes = 4097", good, "1 to 4096"),
            ("node = 4", good, "unknown argument"),
            ("nodes = 4, threads = 2", good, "unknown argument"),
            ("", "fn start(job: &Job) {}", "before `fn main`"),
            ("", "async fn main(job: &Job) {}", "not async"),
            ("", "fn main() {}", "takes the job"),
            ("", "fn main(job: &Job, rank: u32) {}", "takes the job"),
        ] {
            let text = made(arguments, function).unwrap_err();
            assert!(text.contains(why), "{arguments} {function}: {text}");
        }
    }
}
