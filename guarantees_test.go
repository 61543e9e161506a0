package leasehold_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Every test that docs/guarantees.md names exists: a promise without a test is not yet a promise.
func TestGuarantees_NameTestsThatExist(t *testing.T) {
	page, err := os.ReadFile("docs/guarantees.md")
	if err != nil {
		t.Fatal(err)
	}
	exist := make(map[string]bool)
	declared := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	err = filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		for _, m := range declared.FindAllSubmatch(source, -1) {
			exist[string(m[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`(Test\\w+)`").FindAllSubmatch(page, -1)
	if len(named) < 100 {
		t.Fatalf("the page names %d tests only", len(named))
	}
	for _, m := range named {
		if name := string(m[1]); !exist[name] {
			t.Errorf("docs/guarantees.md names %s, which does not exist", name)
		}
	}
}
