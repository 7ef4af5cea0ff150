package clientenv_test

import (
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/robotsproxy/robotsproxy/internal/clientenv"
)

func ExampleAssignment() {
	export, err := clientenv.Assignment("sh")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(export(clientenv.Variable{Name: "SSL_CERT_FILE", Value: "/home/op/it's mine/ca-bundle.pem"}))
	// Output: export SSL_CERT_FILE='/home/op/it'\''s mine/ca-bundle.pem'
}

func ExampleWrite() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	ca, err := os.ReadFile(filepath.Join("testdata", "ca.pem"))
	if err != nil {
		log.Fatal(err)
	}
	vars, err := clientenv.Write(clientenv.Options{Listen: "0.0.0.0:3128", CA: ca, Dir: dir})
	if err != nil {
		log.Fatal(err)
	}
	for _, v := range vars[:2] {
		fmt.Println(v.Name, v.Value)
	}
	// Output:
	// http_proxy http://127.0.0.1:3128
	// HTTP_PROXY http://127.0.0.1:3128
}
