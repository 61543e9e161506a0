package redis_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestModelBites seeds known mistakes in the scripts, one at a time in a copy, and asserts that the comparison with the memory
// backend finds each.
func TestModelBites(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the package once per mistake")
	}
	for _, m := range []struct{ name, file, old, new string }{
		{"LIFO", "shared.lua", `'ZPOPMIN', KEYS[3])[1]`, `'ZPOPMAX', KEYS[3])[1]`},
		{"ForeignDelete", "release.lua", `string.sub(record, 1, #ARGV[1]) ~= ARGV[1]`, `false`},
		{"ForeignRenewal", "renew.lua", `string.sub(record, 1, #ARGV[1]) ~= ARGV[1]`, `false`},
		{"InexactRelease", "release.lua", `last == ARGV[2] or`, `true or`},
		{"Overtaking", "shared.lua", `if waiting then`, `if false then`},
		{"WithdrawalLeavesThePlace", "withdraw.lua", `redis.call('ZREM', KEYS[3], ARGV[1])`, ``},
		{"AcquireTwice", "shared.lua", `if holder ~= owner then`, `if true then`},
	} {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			file, err := filepath.Abs(filepath.Join("lua", m.file))
			if err != nil {
				t.Fatal(err)
			}
			source, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if n := strings.Count(string(source), m.old); n == 0 {
				t.Fatalf("%s does not have %q", m.file, m.old)
			}
			dir := t.TempDir()
			changed, overlay := filepath.Join(dir, m.file), filepath.Join(dir, "overlay.json")
			content, err := json.Marshal(map[string]any{"Replace": map[string]string{file: changed}})
			if err != nil {
				t.Fatal(err)
			}
			for path, data := range map[string][]byte{
				changed: []byte(strings.Replace(string(source), m.old, m.new, 1)),
				overlay: content,
			} {
				if err := os.WriteFile(path, data, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			out, err := exec.Command("go", "test", "-count=1", "-overlay", overlay, "-run", "TestModel_", "-rapid.checks=400", "-rapid.nofailfile", "-rapid.shrinktime=1s", "-failfast", ".").CombinedOutput()
			if err == nil || !strings.Contains(string(out), "--- FAIL: TestModel_RedisAgreesWithMemory") {
				t.Errorf("not found: %v\n%s", err, out)
			}
		})
	}
}
