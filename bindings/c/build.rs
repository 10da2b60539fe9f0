//! Names the shared library, so that programs find it by the version of its interface.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,liboikaze.so.0");
}
