// Package isnil finds the nil that hides in an interface.
package isnil

import "reflect"

// Check reports whether v is nil or an interface around a nil pointer.
func Check(v any) bool {
	if v == nil {
		return true
	}
	r := reflect.ValueOf(v)
	return r.Kind() == reflect.Pointer && r.IsNil()
}
