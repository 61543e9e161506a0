package redis

import "strings"

// keys are the physical keys of one name. They share a hash tag, so they share a slot in a cluster.
type keys struct {
	record    string // STRING "<token> <owner> <inbox> <label>", runs out with the lease
	token     string // STRING "<token>" or, if somebody may wait, "<token> q"; outlives the lease by a day
	queue     string // ZSET owner → order of arrival
	places    string // HASH owner → "<inbox> <ttl> <label>"
	processes string // ZSET inbox → ms of server time until which the process keeps its places
}

// keysOf returns the keys of name. Invariant: two different parts never share a key, because the hash tag is the first in the
// key (no prefix has a brace), is never empty, and the escaped part cannot end it.
func (b *Backend) keysOf(name string) keys {
	stem := b.prefix + "{" + escape(b.keyFunc(name)) + "}:"
	n := len(stem) + 1
	all := stem + "l" + stem + "t" + stem + "q" + stem + "w" + stem + "p" // one allocation for five keys
	return keys{
		record:    all[0*n : 1*n],
		token:     all[1*n : 2*n],
		queue:     all[2*n : 3*n],
		places:    all[3*n : 4*n],
		processes: all[4*n:],
	}
}

var escaper = strings.NewReplacer("%", "%25", "}", "%7D")

// escape makes part fit for a hash tag: without closing braces and not empty. It is injective.
func escape(part string) string {
	if part == "" {
		return "%" // followed by no digits, so it is no escape
	}
	if !strings.ContainsAny(part, "%}") {
		return part
	}
	return escaper.Replace(part)
}
