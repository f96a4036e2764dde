package main

import (
	"context"
	"strings"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
)

// series are kept in memory. The engine asks them as if they were a database.
type series []storage.Series

// read returns series that are written one a line, each with a value a minute.
func read(text string) (series, error) {
	var all series
	for line := range strings.Lines(text) {
		name, values, err := promQL.ParseSeriesDesc(strings.TrimSpace(line))
		if err != nil {
			return nil, err
		}
		var samples []chunks.Sample
		for minute, value := range values {
			if !value.Omitted {
				samples = append(samples, sample{int64(minute) * time.Minute.Milliseconds(), value.Value})
			}
		}
		all = append(all, storage.NewListSeries(name, samples))
	}
	return all, nil
}

// Querier implements storage.Queryable.
func (s series) Querier(_, _ int64) (storage.Querier, error) {
	return s, nil
}

// Select implements storage.Querier.
func (s series) Select(_ context.Context, _ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
	selected := &set{}
	for _, one := range s {
		if matches(one.Labels(), matchers) {
			selected.left = append(selected.left, one)
		}
	}
	return selected
}

func matches(of labels.Labels, matchers []*labels.Matcher) bool {
	for _, matcher := range matchers {
		if !matcher.Matches(of.Get(matcher.Name)) {
			return false
		}
	}
	return true
}

// LabelValues implements storage.Querier. The engine doesn't ask.
func (series) LabelValues(context.Context, string, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, nil
}

// LabelNames implements storage.Querier. The engine doesn't ask.
func (series) LabelNames(context.Context, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, nil
}

// Close implements storage.Querier.
func (series) Close() error {
	return nil
}

// set implements storage.SeriesSet.
type set struct {
	current storage.Series
	left    []storage.Series
}

func (s *set) Next() bool {
	if len(s.left) == 0 {
		return false
	}
	s.current, s.left = s.left[0], s.left[1:]
	return true
}

func (s *set) At() storage.Series                { return s.current }
func (s *set) Err() error                        { return nil }
func (s *set) Warnings() annotations.Annotations { return nil }

// sample implements chunks.Sample.
type sample struct {
	at    int64
	value float64
}

func (s sample) T() int64                      { return s.at }
func (s sample) ST() int64                     { return 0 }
func (s sample) F() float64                    { return s.value }
func (s sample) H() *histogram.Histogram       { return nil }
func (s sample) FH() *histogram.FloatHistogram { return nil }
func (s sample) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (s sample) Copy() chunks.Sample           { return s }
