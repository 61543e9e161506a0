package leasehold_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/leasehold-go/leasehold/backends/redis"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/lease"
	"github.com/leasehold-go/leasehold/mutex"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(redistest.Main(m)) }

// pages are the texts whose claims are checked here.
var pages = []string{"README.md", "docs/redis.md", "docs/writing-a-backend.md"}

// prelude declares what the snippets take for granted. They are fragments of a program that has these already.
const prelude = `
type (
	job   struct{}
	store struct{}
	shop  struct{}
)

func (store) Write(job, lease.Token) error                 { return nil }
func (shop) New(testing.TB) lease.Backend                  { return nil }
func (shop) Again(testing.TB, lease.Backend) lease.Backend { return nil }
func (shop) Delete(testing.TB, lease.Backend, string)      {}
func produce(context.Context) error                        { return nil }
func consume(context.Context, lease.Token) error           { return nil }

var (
	ctx         context.Context
	clk         clock.Clock
	backend     lease.Backend
	locks       *mutex.Locker
	h           *lease.Handle
	db          store
	mystore     shop
	jobs        chan job
	tx          *sql.Tx
	balance, id int64
)
`

// packages are what snippets may import, by the name that they use.
var packages = map[string]string{
	"clock":     "github.com/benbjohnson/clock",
	"context":   "context",
	"errgroup":  "golang.org/x/sync/errgroup",
	"errors":    "errors",
	"fmt":       "fmt",
	"fs":        "io/fs",
	"goredis":   "github.com/redis/go-redis/v9",
	"lease":     "github.com/leasehold-go/leasehold/lease",
	"leasetest": "github.com/leasehold-go/leasehold/lease/leasetest",
	"log":       "log",
	"memory":    "github.com/leasehold-go/leasehold/backends/memory",
	"mutex":     "github.com/leasehold-go/leasehold/mutex",
	"redis":     "github.com/leasehold-go/leasehold/backends/redis",
	"sql":       "database/sql",
	"testing":   "testing",
	"time":      "time",
	"tls":       "crypto/tls",
}

// block is a fenced piece of a page.
type block struct {
	page, language string
	line           int // of its first line
	text           string
}

func blocksOf(t *testing.T, page string) []block {
	t.Helper()
	var all []block
	var now *block
	for i, line := range strings.Split(read(t, page), "\n") {
		fence, is := strings.CutPrefix(line, "```")
		switch {
		case is && now == nil:
			now = &block{page: page, language: fence, line: i + 2}
		case is:
			all = append(all, *now)
			now = nil
		case now != nil:
			now.text += line + "\n"
		}
	}
	if now != nil {
		t.Fatalf("%s:%d: the block has no end", page, now.line)
	}
	return all
}

// TestPages_SnippetsCompile builds every Go block of the pages, each as a package of its own that exists only in an overlay.
// Errors name the page and the line.
func TestPages_SnippetsCompile(t *testing.T) {
	root, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	overlay := map[string]string{}
	args := []string{"build", "-gcflags=-e", "-overlay", filepath.Join(dir, "overlay.json")}
	for _, page := range pages {
		for _, b := range blocksOf(t, page) {
			if b.language != "go" {
				continue
			}
			name := fmt.Sprintf("snippet%d", len(overlay))
			file := filepath.Join(dir, name+".go")
			write(t, file, program(t, b))
			overlay[filepath.Join(root, "internal", name, "snippet.go")] = file
			args = append(args, "./internal/"+name)
		}
	}
	if len(overlay) == 0 {
		t.Fatal("no Go block was found")
	}
	plan, err := json.Marshal(map[string]any{"Replace": overlay})
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "overlay.json"), string(plan))
	out, err := exec.Command("go", args...).CombinedOutput()
	if err != nil {
		t.Errorf("go build: %v\n%s", err, out)
	}
}

// program makes a package of b, which holds either declarations or statements.
func program(t *testing.T, b block) string {
	t.Helper()
	body := fmt.Sprintf("\n//line %s:%d\n%s", b.page, b.line, b.text)
	if _, err := parser.ParseFile(token.NewFileSet(), "", "package p"+body, 0); err != nil {
		body = "\nfunc _() error {\n{" + body + "}\nreturn nil\n}\n"
	}
	body = prelude + body
	file, err := parser.ParseFile(token.NewFileSet(), "", "package snippet\n"+body, 0)
	if err != nil {
		t.Fatal(err)
	}
	imports := map[string]bool{}
	for _, ident := range file.Unresolved {
		if path := packages[ident.Name]; path != "" {
			imports[fmt.Sprintf("import %s %q\n", ident.Name, path)] = true
		}
	}
	var s strings.Builder
	s.WriteString("package snippet\n")
	for line := range imports {
		s.WriteString(line)
	}
	return s.String() + body
}

// TestREADME_Options finds every option of mutex in the table, with the default and the bounds that the code has.
func TestREADME_Options(t *testing.T) {
	rows := rowsOf(t, "README.md", "## Options")
	says := map[string][]string{
		"WithTTL":        {short(mutex.DefaultTTL), short(lease.MinTTL), short(lease.MaxTTL)},
		"WithRenewEvery": {"TTL/3", "TTL/2"},
		"WithLabel":      {fmt.Sprint(lease.MaxLabelBytes)},
	}
	options := functionsReturning(t, "mutex/*.go", "Option")
	if len(options) < 12 {
		t.Fatalf("only the options %v were found", options)
	}
	for _, option := range options {
		row := rowNaming(rows, option+"(")
		if row == "" {
			t.Errorf("README.md has no row for %s", option)
		}
		for _, want := range says[option] {
			if !strings.Contains(row, want) {
				t.Errorf("README.md does not say %q in %q", want, row)
			}
		}
	}
	for _, option := range functionsReturning(t, "backends/redis/*.go", "Option") {
		if rowNaming(rowsOf(t, "docs/redis.md", "## Options"), option+"(") == "" {
			t.Errorf("docs/redis.md has no row for %s", option)
		}
	}
	if !strings.Contains(read(t, "README.md"), fmt.Sprintf("1 to %d bytes of any value", lease.MaxNameBytes)) {
		t.Error("README.md does not say how long a name may be")
	}
}

// TestREADME_Errors finds every sentinel, every error type and every reason of package lease.
func TestREADME_Errors(t *testing.T) {
	text := section(t, "README.md", "## Errors")
	sentinels := 0
	for _, name := range exportedNames(t, "lease/*.go") {
		switch {
		case strings.HasPrefix(name, "Err"):
			sentinels++
		case strings.HasSuffix(name, "Error"):
			name = "*lease." + name
		default:
			continue
		}
		if !strings.Contains(text, name) {
			t.Errorf("README.md does not tell of %s", name)
		}
	}
	if sentinels < 9 {
		t.Errorf("only %d sentinels were found", sentinels)
	}
	for reason := lease.Expired; !strings.HasPrefix(reason.String(), "Reason("); reason++ {
		if !strings.Contains(text, "| `"+reasonNames[reason]+"` |") {
			t.Errorf("README.md has no row for the reason %q", reason)
		}
	}
}

var reasonNames = map[lease.Reason]string{
	lease.Expired: "Expired", lease.Missing: "Missing", lease.Taken: "Taken", lease.Revoked: "Revoked",
	lease.MaxHold: "MaxHold", lease.Closed: "Closed", lease.Abandoned: "Abandoned",
}

// TestPages_ACL makes the user of each page's ACL rule on a server, and locks, waits and hands over as that user.
func TestPages_ACL(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, page := range []string{"README.md", "docs/redis.md"} {
		t.Run(page, func(t *testing.T) {
			server := redistest.Start(t)
			rule := ""
			for _, b := range blocksOf(t, page) {
				if strings.HasPrefix(b.text, "ACL SETUSER leasehold") {
					rule = b.text
				}
			}
			var args []any
			for _, word := range strings.Fields(rule) {
				args = append(args, word)
			}
			if len(args) == 0 {
				t.Fatal("there is no rule")
			}
			if err := server.Client().Do(ctx, args...).Err(); err != nil {
				t.Fatal(err)
			}
			locker := func() *mutex.Locker {
				client := goredis.NewClient(&goredis.Options{Addr: server.Addr(), Username: "leasehold", Password: "secret"})
				b, err := redis.New(client)
				if err != nil {
					t.Fatal(err)
				}
				locks, err := mutex.New(b)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _, _, _ = locks.Close(ctx), b.Close(), client.Close() })
				return locks
			}
			h, err := locker().Lock(ctx, "n")
			if err != nil {
				t.Fatal(err)
			}
			if err := h.Renew(ctx); err != nil {
				t.Error(err)
			}
			// The waiter is another process, so the hand-over is published.
			got := make(chan error, 1)
			waits := make(chan struct{}, 100)
			waiter := locker()
			go func() {
				h, err := waiter.Lock(ctx, "n", mutex.WithOnWait(func(mutex.Waiting) { waits <- struct{}{} }))
				if err == nil {
					err = h.Close()
				}
				got <- err
			}()
			for range 3 { // the queue, and a poll of it
				select {
				case <-waits:
				case err := <-got:
					t.Fatalf("the waiter: %v", err)
				}
			}
			if err := h.Close(); err != nil {
				t.Error(err)
			}
			if err := <-got; err != nil {
				t.Errorf("the waiter: %v", err)
			}
			denied, err := server.Client().Do(ctx, "acl", "log").Slice()
			if err != nil {
				t.Fatal(err)
			}
			for _, entry := range denied {
				t.Errorf("denied: %v", entry)
			}
		})
	}
}

// TestPages_Links finds the files that the pages link to.
func TestPages_Links(t *testing.T) {
	for _, page := range pages {
		for i, part := range strings.Split(read(t, page), "](") {
			target, _, _ := strings.Cut(part, ")")
			target, _, _ = strings.Cut(target, "#")
			if i == 0 || target == "" || strings.Contains(target, "://") {
				continue
			}
			if _, err := os.Stat(filepath.Join(filepath.Dir(page), target)); err != nil {
				t.Errorf("%s: %v", page, err)
			}
		}
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
}

// section returns the text under a heading, up to the next of its kind.
func section(t *testing.T, page, heading string) string {
	t.Helper()
	_, text, found := strings.Cut(read(t, page), "\n"+heading+"\n")
	if !found {
		t.Fatalf("%s has no %q", page, heading)
	}
	text, _, _ = strings.Cut(text, "\n## ")
	return text
}

func rowsOf(t *testing.T, page, heading string) []string {
	t.Helper()
	return slices.DeleteFunc(strings.Split(section(t, page, heading), "\n"), func(line string) bool {
		return !strings.HasPrefix(line, "| ")
	})
}

// rowNaming returns the row whose first cell names name as code.
func rowNaming(rows []string, name string) string {
	for _, row := range rows {
		if strings.HasPrefix(row, "| `"+name) {
			return row
		}
	}
	return ""
}

// short writes a duration as the pages do.
func short(d time.Duration) string {
	const year = 365 * 24 * time.Hour
	switch {
	case d >= year && d%year == 0:
		return fmt.Sprintf("%d years", d/year)
	case d >= time.Second && d%time.Second == 0:
		return fmt.Sprintf("%d s", d/time.Second)
	}
	return fmt.Sprintf("%d ms", d/time.Millisecond)
}

// sources parses the files that match pattern, without tests.
func sources(t *testing.T, pattern string) []*ast.File {
	t.Helper()
	names, err := filepath.Glob(pattern)
	if err != nil || len(names) == 0 {
		t.Fatalf("no file matches %s: %v", pattern, err)
	}
	var files []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	return files
}

// functionsReturning names the exported functions whose one result has that type.
func functionsReturning(t *testing.T, pattern, result string) []string {
	t.Helper()
	var names []string
	for _, f := range sources(t, pattern) {
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Recv != nil || !fn.Name.IsExported() || fn.Type.Results.NumFields() != 1 {
				continue
			}
			if id, ok := fn.Type.Results.List[0].Type.(*ast.Ident); ok && id.Name == result {
				names = append(names, fn.Name.Name)
			}
		}
	}
	return names
}

// exportedNames lists the exported variables and types of a package.
func exportedNames(t *testing.T, pattern string) []string {
	t.Helper()
	var names []string
	for _, f := range sources(t, pattern) {
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				return false
			case *ast.ValueSpec:
				for _, id := range n.Names {
					names = append(names, id.Name)
				}
			case *ast.TypeSpec:
				names = append(names, n.Name.Name)
			}
			return true
		})
	}
	return slices.DeleteFunc(names, func(name string) bool { return !ast.IsExported(name) })
}

// TestProgram_SaysWhere makes sure that a snippet which does not compile is found, with its line.
func TestProgram_SaysWhere(t *testing.T) {
	got := program(t, block{page: "page.md", line: 7, text: "h.Close()\n"})
	for _, want := range []string{"//line page.md:7\nh.Close()", `import lease "github.com/leasehold-go/leasehold/lease"`} {
		if !bytes.Contains([]byte(got), []byte(want)) {
			t.Errorf("no %q in:\n%s", want, got)
		}
	}
}
