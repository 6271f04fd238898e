//! What must not compile (soundness rules 1 to 3, 5, 8, 10 and 17), one program a rule in `ui`.
//!
//! Beside each is what the compiler says. `TRYBUILD=overwrite` writes that anew, for a new compiler.

#[test]
fn what_is_unsound_does_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
