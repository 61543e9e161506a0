package redis

import (
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
)

// script is a Lua script and what requests need of it, as they need it: an any made once spares one allocation per call.
type script struct {
	source, digest, keyCount any
	keys                     int
}

// Files, each with the invariant it keeps. Those that can find the name free have the shared part in front.
var (
	//go:embed lua/shared.lua
	sharedLua string
	//go:embed lua/acquire.lua
	acquireLua string
	//go:embed lua/wait.lua
	waitLua string
	//go:embed lua/poll.lua
	pollLua string
	//go:embed lua/renew.lua
	renewLua string
	//go:embed lua/release.lua
	releaseLua string
	//go:embed lua/withdraw.lua
	withdrawLua string

	acquireScript  = newScript(5, sharedLua, acquireLua)
	waitScript     = newScript(5, sharedLua, waitLua)
	pollScript     = newScript(5, sharedLua, pollLua)
	renewScript    = newScript(2, "", renewLua)
	releaseScript  = newScript(5, sharedLua, releaseLua)
	withdrawScript = newScript(5, sharedLua, withdrawLua)
)

func newScript(keys int, shared, own string) *script {
	source := shared + own
	sum := sha1.Sum([]byte(source))
	return &script{source: source, digest: hex.EncodeToString(sum[:]), keyCount: keys, keys: keys}
}

// args returns the arguments of EVALSHA.
func (s *script) args(k *keys, argv ...any) []any {
	all := [...]string{k.record, k.token, k.queue, k.places, k.processes}
	args := make([]any, 0, 3+s.keys+len(argv))
	args = append(args, "evalsha", s.digest, s.keyCount)
	for _, key := range all[:s.keys] {
		args = append(args, key)
	}
	return append(args, argv...)
}

// evalArgs returns the same request for a server that does not know the script.
func (s *script) evalArgs(args []any) []any {
	args = append([]any(nil), args...)
	args[0], args[1] = "eval", s.source
	return args
}
