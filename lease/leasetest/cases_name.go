package leasetest

import (
	"strings"

	"github.com/leasehold-go/leasehold/lease"
)

var nameCases = []testCase{
	{
		name: "names-are-independent",
		explanation: "A lease on one name has nothing to do with any other: neither with names that begin alike nor with names in other case. " +
			"Whatever maps names to keys must be injective.",
		run: func(k *kit) { k.independent("a", "A", "aa", "a:", ":a", "a:lock", "a:token", "a:queue", "a/", "a/b") },
	},
	{
		name: "odd-names-are-independent",
		explanation: "A name is any bytes. Braces that decide about hash slots, separators, patterns, NUL and broken UTF-8 must neither break a " +
			"call nor make two names share a record, and all calls must build the same key from one name.",
		run: func(k *kit) {
			k.independent("{a}", "{a}b{c}", "}{", "{}", "{}x", "x{", "{{a}}", "user:{42}:{7}", " ", "  ", "\t", "\n", "a\nb",
				"\x00", "\x00\x00", "a\x00b", "\xff\xfe", "é", "e\u0301", "*", "?", "[a]", "%s", "%2F", "/", "..", "\\", "'", "\"")
		},
	},
	{
		name:        "longest-names",
		explanation: "Names up to MaxNameBytes work, and count to the last byte: a store that cuts them makes two names one.",
		run: func(k *kit) {
			room := lease.MaxNameBytes - len(k.prefix)
			ascii := strings.Repeat("n", room-1)
			utf8 := strings.Repeat("ü", room/2-1)
			k.independent(ascii+"1", ascii+"2", ascii, utf8, utf8+"x")
		},
	},
}

// independent takes all names at once, each for an owner of its own, and gives them back one by one.
func (k *kit) independent(suffixes ...string) {
	k.Helper()
	var all []*held
	for _, s := range suffixes {
		h, err := k.try(k.name(s), k.owner(), long)
		if err != nil {
			k.Fatalf("Acquire(%.60q): got error %v; nobody has that name", s, err)
		}
		all = append(all, h)
	}
	for _, h := range all {
		k.renewed(h, long)
	}
	for i, h := range all {
		k.release(h)
		k.wantFree(h.claim.Name)
		for _, rest := range all[i+1:] {
			k.wantHeld(rest)
		}
	}
}
