//! Public items of the library: one line an item, by its path.
//!
//! Items that a macro makes, and traits that are derived, are not seen.

use super::tokens::text;
use super::tree::{Names, Tree, is_hidden, is_public, name_of};
use std::collections::{BTreeMap, BTreeSet};
use syn::{Fields, ImplItem, Item, TraitItem, Type};

/// Lines of the face, and the number of public types of each module.
pub type Face = (Vec<String>, BTreeMap<String, usize>);

/// Returns the face of `crates/oikaze`.
///
/// # Errors
/// A source cannot be read.
pub fn face() -> Result<Face, String> {
    let tree = Tree::read()?;
    let mut walk = Walk { tree: &tree, lines: BTreeSet::new(), types: BTreeMap::new() };
    walk.module(&vec!["oikaze".to_owned()]);
    let mut types = walk.types;
    types.retain(|_, count| *count > 0);
    Ok((walk.lines.into_iter().collect(), types))
}

struct Walk<'t> {
    tree: &'t Tree,
    lines: BTreeSet<String>,
    types: BTreeMap<String, usize>,
}

impl Walk<'_> {
    fn module(&mut self, module: &Names) {
        let tree = self.tree;
        self.types.insert(module.join("::"), 0);
        self.lines.insert(format!("{}: mod", module.join("::")));
        for item in tree.0.get(module).into_iter().flatten() {
            if let Some(name) = name_of(item) {
                self.item(module, &name, module, &name);
            }
            if let Item::Mod(inner) = item
                && is_public(&inner.vis)
                && !is_hidden(&inner.attrs)
            {
                self.module(&[module.as_slice(), &[inner.ident.to_string()]].concat());
            }
        }
        for found in tree.uses(module) {
            if found.is_mention {
                let line =
                    format!("{}::{}: use {}", module.join("::"), found.name, found.path.join("::"));
                self.lines.insert(line);
                continue;
            }
            let names = if found.name == "*" {
                let items = tree.0.get(&found.path).into_iter().flatten();
                items.filter_map(name_of).map(|name| (found.path.clone(), name)).collect()
            } else {
                match tree.resolve(&found.path) {
                    Some(declared) => vec![declared],
                    None => {
                        let path = found.path.join("::");
                        self.lines.insert(format!(
                            "{}::{}: use {path}",
                            module.join("::"),
                            found.name
                        ));
                        continue;
                    }
                }
            };
            for (declared, name) in names {
                let shown = if found.name == "*" { &name } else { &found.name };
                self.item(module, shown, &declared, &name);
            }
        }
    }

    /// Writes an item of this name, which `declared` declares as `original`.
    fn item(&mut self, module: &Names, name: &str, declared: &Names, original: &str) {
        let tree = self.tree;
        let path = format!("{}::{name}", module.join("::"));
        for item in tree.items(declared, original) {
            let is_type = self.one(&path, item);
            if is_type {
                *self.types.entry(module.join("::")).or_default() += 1;
                self.implementations(&path, declared, original);
            }
        }
    }

    /// Writes an item. Returns `true` if it is a type.
    fn one(&mut self, path: &str, item: &Item) -> bool {
        match item {
            Item::Struct(item) => {
                self.line(path, &format!("struct{}", generics(&item.generics)));
                self.fields(path, &item.fields);
            }
            Item::Enum(item) => {
                self.line(path, &format!("enum{}", generics(&item.generics)));
                for variant in &item.variants {
                    let fields = text(&variant.fields);
                    self.line(&format!("{path}::{}", variant.ident), &format!("variant{fields}"));
                }
            }
            Item::Trait(item) => {
                let bounds = text(&item.supertraits);
                self.line(path, &format!("trait{} {bounds}", generics(&item.generics)));
                for part in &item.items {
                    match part {
                        TraitItem::Fn(part) if !is_hidden(&part.attrs) => {
                            let of = format!("{path}::{}", part.sig.ident);
                            self.line(&of, &text(&part.sig));
                        }
                        TraitItem::Type(part) => {
                            let bounds = text(&part.bounds);
                            self.line(
                                &format!("{path}::{}", part.ident),
                                &format!("type {bounds}"),
                            );
                        }
                        TraitItem::Const(part) => {
                            let of = format!("{path}::{}", part.ident);
                            self.line(&of, &format!("const {}", text(&part.ty)));
                        }
                        _ => {}
                    }
                }
            }
            Item::Type(item) => {
                let of = text(&item.ty);
                self.line(path, &format!("type{} = {of}", generics(&item.generics)));
            }
            Item::Const(item) => {
                self.line(path, &format!("const {}", text(&item.ty)));
                return false;
            }
            Item::Static(item) => {
                self.line(path, &format!("static {}", text(&item.ty)));
                return false;
            }
            Item::Fn(item) => {
                self.line(path, &text(&item.sig));
                return false;
            }
            _ => return false,
        }
        true
    }

    fn fields(&mut self, path: &str, fields: &Fields) {
        for (number, field) in fields.iter().enumerate() {
            if is_public(&field.vis) && !is_hidden(&field.attrs) {
                let name = field.ident.as_ref().map_or(number.to_string(), ToString::to_string);
                self.line(&format!("{path}.{name}"), &text(&field.ty));
            }
        }
    }

    /// Writes methods of a type, and traits that it implements, in all modules of its crate and of
    /// the library.
    fn implementations(&mut self, path: &str, declared: &Names, name: &str) {
        let tree = self.tree;
        let crates = [declared[0].as_str(), "oikaze"];
        let modules = tree.0.iter().filter(|(module, _)| crates.contains(&module[0].as_str()));
        for item in modules.flat_map(|(_, items)| items) {
            let Item::Impl(found) = item else { continue };
            let Type::Path(of) = &*found.self_ty else { continue };
            if of.path.segments.last().is_none_or(|last| last.ident != name)
                || is_hidden(&found.attrs)
            {
                continue;
            }
            if let Some((_, of_trait, _)) = &found.trait_ {
                let parameters = generics(&found.generics);
                let of_trait = text(of_trait);
                self.line(
                    path,
                    &format!("impl{parameters} {of_trait} for {}", text(&found.self_ty)),
                );
                continue;
            }
            for part in &found.items {
                match part {
                    ImplItem::Fn(part) if is_public(&part.vis) && !is_hidden(&part.attrs) => {
                        self.line(&format!("{path}::{}", part.sig.ident), &text(&part.sig));
                    }
                    ImplItem::Const(part) if is_public(&part.vis) && !is_hidden(&part.attrs) => {
                        let of = format!("{path}::{}", part.ident);
                        self.line(&of, &format!("const {}", text(&part.ty)));
                    }
                    _ => {}
                }
            }
        }
    }

    fn line(&mut self, path: &str, what: &str) {
        self.lines.insert(format!("{path}: {}", what.trim_end()));
    }
}

fn generics(generics: &syn::Generics) -> String {
    text(generics)
}
