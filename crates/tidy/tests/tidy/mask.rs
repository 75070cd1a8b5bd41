//! Separates code from comments and literals.

use proc_macro2::{TokenStream, TokenTree};

/// The text of a Rust source, separated by kind. Lines and columns are unchanged.
#[derive(Debug)]
pub(crate) struct Masked {
    pub(crate) code: String,
    pub(crate) comments: String,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Code,
    Literal,
    Comment,
}

impl Masked {
    pub(crate) fn new(source: &str, tokens: TokenStream) -> Self {
        let mut kinds = vec![Kind::Comment; source.len()];
        mark(source, tokens, &mut kinds);
        let only = |kind| {
            let chars = source.char_indices();
            let mask = |(at, char)| if kinds[at] == kind || char == '\n' { char } else { ' ' };
            chars.map(mask).collect()
        };
        Self { code: only(Kind::Code), comments: only(Kind::Comment) }
    }
}

fn mark(source: &str, tokens: TokenStream, kinds: &mut [Kind]) {
    for token in tokens {
        // A documentation comment is an attribute whose tokens have the location of the comment.
        let text = &source[token.span().byte_range()];
        if text.starts_with("//") || text.starts_with("/*") {
            continue;
        }
        let (kind, spans) = match token {
            TokenTree::Group(group) => {
                mark(source, group.stream(), kinds);
                (Kind::Code, vec![group.span_open(), group.span_close()])
            }
            TokenTree::Literal(literal) => (Kind::Literal, vec![literal.span()]),
            other => (Kind::Code, vec![other.span()]),
        };
        for span in spans {
            kinds[span.byte_range()].fill(kind);
        }
    }
}

pub(crate) fn is_word(char: char) -> bool {
    char.is_alphanumeric() || char == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn masked(source: &str) -> Masked {
        Masked::new(source, source.parse().expect("it is Rust"))
    }

    fn code(source: &str) -> String {
        masked(source).code.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn comments_are_not_code() {
        assert_eq!(code("a // { \" '\nb"), "a b");
        assert_eq!(code("a /* { /* nested */ \" */ b"), "a b");
        assert_eq!(code("/// fn in_a_doc() {\nfn real() {}"), "fn real() {}");
        assert_eq!(code("a / b * c"), "a / b * c");
    }

    #[test]
    fn strings_are_not_code_whatever_they_hold() {
        assert_eq!(code(r#"f("{ // \" } \\") + g"#), "f( ) + g");
        assert_eq!(code("f(\"line\n { fn x() {\n\") g"), "f( ) g");
        assert_eq!(code(r###"f(r#" { "# , r"\", br##"x"#{"##) g"###), "f( , , ) g");
        assert_eq!(code(r#"b"{" c"{" b'{' "#), "");
        assert_eq!(code("r#fn r#type"), "r#fn r#type");
        assert_eq!(code(r#"for_r"{" "#), "for_r");
    }

    #[test]
    fn character_literals_are_told_from_lifetimes() {
        assert_eq!(code(r"['{', '\'', '\\', '\u{7b}', '§', b'\n', '}']"), "[ , , , , , , ]");
        assert_eq!(
            code("fn f<'a>(x: &'a str) -> &'static T {}"),
            "fn f<'a>(x: &'a str) -> &'static T {}"
        );
        assert_eq!(code("'outer: loop { break 'outer; }"), "'outer: loop { break 'outer; }");
        assert_eq!(code("x::<'a,'b>('c')"), "x::<'a,'b>( )");
        assert_eq!(code("'\"' + '\"' {}"), "+ {}");
    }

    #[test]
    fn lines_and_columns_stay_where_they_are() {
        let source = "let a = \"one\ntwo\"; // three §\n/* four\n*/ b\n";
        let masked = masked(source);
        for masked in [&masked.code, &masked.comments] {
            let widths = |text: &str| text.lines().map(|line| line.chars().count()).collect();
            let (before, after): (Vec<_>, Vec<_>) = (widths(source), widths(masked));
            assert_eq!(before, after);
        }
        assert_eq!(masked.comments.trim(), "// three §\n/* four\n*/".trim());
    }
}
