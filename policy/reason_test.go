package policy

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"testing"
)

// Reasons and Outcomes have every constant of their types.
func TestClosedLists(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "reason.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	constants := 0
	ast.Inspect(file, func(n ast.Node) bool {
		decl, ok := n.(*ast.GenDecl)
		if !ok || decl.Tok != token.CONST {
			return true
		}
		for _, spec := range decl.Specs {
			v := spec.(*ast.ValueSpec)
			text, err := strconv.Unquote(v.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			constants++
			if text != "" && !slices.Contains(Reasons, Reason(text)) && !slices.Contains(Outcomes, Outcome(text)) {
				t.Errorf("%s = %q is in no list", v.Names[0], text)
			}
		}
		return false
	})
	if want := 1 + len(Reasons) + len(Outcomes); constants != want {
		t.Errorf("there are %d constants, and %d are listed", constants, want)
	}
}
