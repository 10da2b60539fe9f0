//! Modules of crates by path, and the items in them.

use crate::command::root;
use std::collections::HashMap;
use std::fs;
use std::path::Path;
use syn::{Attribute, Item, UseTree, Visibility};

/// Crates whose items the library may hand on, by the name that sources use.
const CRATES: [(&str, &str); 6] = [
    ("oikaze", "crates/oikaze"),
    ("oikaze_engine", "crates/engine"),
    ("oikaze_launch", "crates/launch"),
    ("oikaze_os", "crates/os"),
    ("oikaze_protocol", "crates/protocol"),
    ("oikaze_serve", "crates/serve"),
];

/// Path of a module or an item: the crate first.
pub type Names = Vec<String>;

/// Modules of all crates.
pub struct Tree(pub HashMap<Names, Vec<Item>>);

/// A name that `pub use` brings: its path, the new name (`*` for all), and whether it is a mention
/// of an item that has its place elsewhere.
pub struct Use {
    pub path: Names,
    pub name: String,
    pub is_mention: bool,
}

impl Tree {
    /// Reads the sources.
    ///
    /// # Errors
    /// A source cannot be read.
    pub fn read() -> Result<Self, String> {
        let mut tree = Self(HashMap::new());
        for (name, folder) in CRATES {
            let source = root().join(folder).join("src");
            tree.module(vec![name.to_owned()], &source.join("lib.rs"), &source)?;
        }
        Ok(tree)
    }

    fn module(&mut self, path: Names, file: &Path, folder: &Path) -> Result<(), String> {
        let failed = |why: &dyn std::fmt::Display| format!("{}: {why}", file.display());
        let text = fs::read_to_string(file).map_err(|why| failed(&why))?;
        let items = syn::parse_file(&text).map_err(|why| failed(&why))?.items;
        self.add(path, items, folder)
    }

    fn add(&mut self, path: Names, items: Vec<Item>, folder: &Path) -> Result<(), String> {
        for item in &items {
            let Item::Mod(module) = item else { continue };
            if has(&module.attrs, "cfg", "test") || has(&module.attrs, "cfg", "doctest") {
                continue;
            }
            let name = module.ident.to_string();
            let inner = [path.as_slice(), std::slice::from_ref(&name)].concat();
            let below = folder.join(&name);
            if let Some((_, items)) = &module.content {
                self.add(inner, items.clone(), &below)?;
                continue;
            }
            let files = [folder.join(format!("{name}.rs")), below.join("mod.rs")];
            if let Some(file) = files.iter().find(|file| file.is_file()) {
                self.module(inner, file, &below)?;
            }
        }
        self.0.insert(path, items);
        Ok(())
    }

    /// Returns what `pub use` brings into a module.
    pub fn uses(&self, module: &Names) -> Vec<Use> {
        let mut uses = Vec::new();
        for item in self.0.get(module).into_iter().flatten() {
            let Item::Use(item) = item else { continue };
            if is_public(&item.vis) && !is_hidden(&item.attrs) {
                let is_mention = has(&item.attrs, "doc", "no_inline");
                flatten(&item.tree, &mut Vec::new(), is_mention, &mut uses);
            }
        }
        for found in &mut uses {
            found.path = self.absolute(module, &found.path);
        }
        uses
    }

    fn absolute(&self, module: &Names, path: &[String]) -> Names {
        let (mut base, mut rest) = (module.clone(), path);
        match path.first().map(String::as_str) {
            Some("crate") => (base, rest) = (module[..1].to_vec(), &path[1..]),
            Some("self") => rest = &path[1..],
            Some(first) if CRATES.iter().any(|(name, _)| *name == first) => base = Vec::new(),
            _ => {}
        }
        while rest.first().is_some_and(|name| name == "super") {
            base.pop();
            rest = &rest[1..];
        }
        let inside = [base.as_slice(), rest].concat();
        // A path to a crate from elsewhere, such as `std`, does not begin in this module.
        let first = [base.as_slice(), &rest[..rest.len().min(1)]].concat();
        let is_known = base.is_empty()
            || rest.len() < 2
            || self.0.contains_key(&first)
            || self.0.contains_key(&inside);
        if is_known { inside } else { rest.to_vec() }
    }

    /// Follows `pub use` to the module that declares a name, and the name there.
    pub fn resolve(&self, path: &Names) -> Option<(Names, String)> {
        let (name, module) = path.split_last()?;
        let module = module.to_vec();
        if self.items(&module, name).next().is_some() {
            return Some((module, name.clone()));
        }
        let items = self.0.get(&module)?.iter();
        let imports = items.filter_map(|item| match item {
            Item::Use(item) => Some(&item.tree),
            _ => None,
        });
        let mut uses = Vec::new();
        imports.for_each(|tree| flatten(tree, &mut Vec::new(), false, &mut uses));
        let mut found = uses.into_iter().filter(|found| found.name == *name || found.name == "*");
        found.find_map(|found| {
            let mut next = self.absolute(&module, &found.path);
            if found.name == "*" {
                next.push(name.clone());
            }
            if next == *path { None } else { self.resolve(&next) }
        })
    }

    /// Returns the items of a name that a module declares.
    pub fn items<'t>(
        &'t self,
        module: &Names,
        name: &'t str,
    ) -> impl Iterator<Item = &'t Item> + use<'t> {
        let items = self.0.get(module).into_iter().flatten();
        items.filter(move |item| name_of(item).is_some_and(|found| found == name))
    }
}

/// Returns the name that an item declares for others.
pub fn name_of(item: &Item) -> Option<String> {
    let (name, visibility, attributes) = match item {
        Item::Const(item) => (&item.ident, &item.vis, &item.attrs),
        Item::Enum(item) => (&item.ident, &item.vis, &item.attrs),
        Item::Fn(item) => (&item.sig.ident, &item.vis, &item.attrs),
        Item::Static(item) => (&item.ident, &item.vis, &item.attrs),
        Item::Struct(item) => (&item.ident, &item.vis, &item.attrs),
        Item::Trait(item) => (&item.ident, &item.vis, &item.attrs),
        Item::Type(item) => (&item.ident, &item.vis, &item.attrs),
        Item::Union(item) => (&item.ident, &item.vis, &item.attrs),
        _ => return None,
    };
    (is_public(visibility) && !is_hidden(attributes)).then(|| name.to_string())
}

fn flatten(tree: &UseTree, path: &mut Names, is_mention: bool, uses: &mut Vec<Use>) {
    let mut found = |path: Names, name: String| uses.push(Use { path, name, is_mention });
    match tree {
        UseTree::Path(next) => {
            path.push(next.ident.to_string());
            flatten(&next.tree, path, is_mention, uses);
            path.pop();
        }
        UseTree::Group(group) => {
            for tree in &group.items {
                flatten(tree, path, is_mention, uses);
            }
        }
        UseTree::Glob(_) => found(path.clone(), "*".to_owned()),
        UseTree::Name(last) => {
            let name = last.ident.to_string();
            found([path.as_slice(), std::slice::from_ref(&name)].concat(), name);
        }
        UseTree::Rename(last) => {
            let path = [path.as_slice(), &[last.ident.to_string()]].concat();
            found(path, last.rename.to_string());
        }
    }
}

/// Returns `true` if everybody sees the item.
pub fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

/// Returns `true` if the documentation leaves the item out.
pub fn is_hidden(attributes: &[Attribute]) -> bool {
    has(attributes, "doc", "hidden")
}

/// Returns `true` if an attribute has exactly this content.
fn has(attributes: &[Attribute], name: &str, content: &str) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident(name)
            && attribute.parse_args::<syn::Ident>().is_ok_and(|found| found == content)
    })
}
