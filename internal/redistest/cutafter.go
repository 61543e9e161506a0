package redistest

import (
	"bytes"
	"slices"
)

// cutRule is one call of CutAfterRequest.
type cutRule struct {
	match []byte
	done  chan struct{} // closed when the client's connection is cut
}

// CutAfterRequest waits for the next request that contains match, on any connection, and lets it reach the server. When the
// server answers, the answer is lost and the client's connection reset: the server has done it and the client cannot know.
// It happens once per call; several calls take the matching requests in turn. The channel is closed once the connection is
// cut, and never if no request matches or the server does not answer.
//
// Match is compared with the bytes sent, so it may be a command's name as the client spells it, a key, or part of a value;
// an empty match fits any. A request that blocks in the server is cut when it is answered. Where an earlier request of the
// same connection is still unanswered, its answer triggers the cut; the server then still gets to read the request that
// matched.
func (p *Proxy) CutAfterRequest(match string) <-chan struct{} {
	rule := &cutRule{match: []byte(match), done: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults.cuts = append(p.faults.cuts, rule)
	return rule.done
}

// takeCut removes and returns the oldest rule whose match ends in arrived, nil if there is none. Before holds the bytes of the
// connection that came last.
func (f *faults) takeCut(before, arrived []byte) *cutRule {
	for i, rule := range f.cuts {
		if bytes.Contains(append(last(before, len(rule.match)-1), arrived...), rule.match) {
			f.cuts = slices.Delete(f.cuts, i, i+1)
			return rule
		}
	}
	return nil
}

// remember returns as much of before and arrived as a match may have begun in.
func (f *faults) remember(before, arrived []byte) []byte {
	n := 0
	for _, rule := range f.cuts {
		n = max(n, len(rule.match)-1)
	}
	return last(append(before, arrived...), n)
}

// last returns a copy of the last n bytes of b, or of all if there are fewer.
func last(b []byte, n int) []byte {
	return slices.Clone(b[max(0, len(b)-max(0, n)):])
}
