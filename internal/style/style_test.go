package style_test

import (
	"fmt"
	"html/template"
	"os"

	"github.com/robotsproxy/robotsproxy/internal/style"
)

func Example() {
	fmt.Println("Content-Security-Policy: default-src 'none'; style-src " + style.Source[:8] + "...")
	page := template.Must(template.New("page").Parse("<style>{{slice . 0 50}}</style>\n"))
	_ = page.Execute(os.Stdout, style.CSS)
	// Output:
	// Content-Security-Policy: default-src 'none'; style-src 'sha256-...
	// <style>/* The pages of robotsproxy: tokens, then the part</style>
}
