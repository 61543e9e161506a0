package redistest

import (
	"fmt"
	"strings"
)

// keyPosition tells where the first key of a command stands when it is not the first argument; 0 means: nowhere.
var keyPosition = map[string]int{
	"eval": 3, "evalsha": 3, "eval_ro": 3, "evalsha_ro": 3, "fcall": 3, "fcall_ro": 3,
	"object": 2, "memory": 2,
	"acl": 0, "auth": 0, "client": 0, "cluster": 0, "command": 0, "config": 0, "dbsize": 0, "debug": 0, "discard": 0,
	"echo": 0, "exec": 0, "flushall": 0, "flushdb": 0, "function": 0, "hello": 0, "info": 0, "keys": 0, "multi": 0,
	"ping": 0, "readonly": 0, "role": 0, "scan": 0, "script": 0, "select": 0, "time": 0, "unwatch": 0, "wait": 0,
}

// firstKey returns the first key of a command, or an empty string. Scripts with no keys have none.
func firstKey(args []any) string {
	if len(args) == 0 {
		return ""
	}
	pos, listed := keyPosition[strings.ToLower(fmt.Sprint(args[0]))]
	if !listed {
		pos = 1
	}
	if pos == 0 || pos >= len(args) || pos == 3 && fmt.Sprint(args[2]) == "0" {
		return ""
	}
	if b, ok := args[pos].([]byte); ok {
		return string(b)
	}
	return fmt.Sprint(args[pos])
}
