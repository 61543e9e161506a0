package redistest

import (
	"os"
	"os/exec"
	"testing"
)

const binaryName = "redis-server"

// Required reports whether a missing redis-server fails tests instead of skipping them: when CI or LEASEHOLD_REQUIRE_REDIS
// is set to anything.
func Required() bool {
	return os.Getenv("CI") != "" || os.Getenv("LEASEHOLD_REQUIRE_REDIS") != ""
}

// findBinary returns the path of redis-server. Without one it ends the test.
func findBinary(t testing.TB) string {
	t.Helper()
	path, err := exec.LookPath(binaryName)
	if err == nil {
		return path
	}
	const hint = "redis-server not found on PATH: install it (apt-get install redis-server, brew install redis)"
	if Required() {
		t.Fatalf("%s; CI or LEASEHOLD_REQUIRE_REDIS is set, so this is a failure", hint)
	}
	t.Skipf("%s to run this test", hint)
	return ""
}
