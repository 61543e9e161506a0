package props

import (
	"reflect"
	"sync"
	"time"
	"unsafe"

	"github.com/leasehold-go/leasehold/backends/memory"
	"github.com/leasehold-go/leasehold/lease"
)

// record is what the store has on a name, with all that a foreign call must leave as it is.
type record struct {
	owner, label string
	token        lease.Token
	expires      time.Time
	queue        []string // owners that wait, first the next
}

// look reads name's record behind the backend's back, so that looking changes nothing: not even a record that has expired and
// that nobody has noticed. ok is false if there is none.
func look(b *memory.Backend, name string) (r record, ok bool) {
	v := reflect.ValueOf(b).Elem()
	mu := (*sync.Mutex)(unsafe.Pointer(v.FieldByName("mu").UnsafeAddr()))
	mu.Lock()
	defer mu.Unlock()
	p := v.FieldByName("records").MapIndex(reflect.ValueOf(name))
	if !p.IsValid() || p.IsNil() {
		return record{}, false
	}
	f := p.Elem()
	expires := f.FieldByName("expires")
	r = record{
		owner:   f.FieldByName("owner").String(),
		label:   f.FieldByName("label").String(),
		token:   lease.Token(f.FieldByName("token").Uint()),
		expires: *(*time.Time)(unsafe.Pointer(expires.UnsafeAddr())),
	}
	queue := f.FieldByName("queue")
	for i := range queue.Len() {
		r.queue = append(r.queue, queue.Index(i).Elem().FieldByName("req").FieldByName("Owner").String())
	}
	return r, true
}
