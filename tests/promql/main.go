// Checks rules and expressions as Prometheus does, with its own parser and engine. It reads one request from standard input, and
// writes the answer to standard output, both in JSON. tests/tests/monitoring calls it.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
)

// Request is what is to be checked.
type Request struct {
	// Rules is the text of a file of rules.
	Rules string `json:"rules"`
	// Expressions are to be taken apart.
	Expressions []string `json:"expressions"`
	// Cases are to be evaluated.
	Cases []Case `json:"cases"`
}

// Case is an expression, the series that it is evaluated on, in the notation of Prometheus' tests, and when.
type Case struct {
	Expression string `json:"expression"`
	Series     string `json:"series"`
	Minutes    int    `json:"minutes"`
}

// Answer has a list for each list of the request, in the same order.
type Answer struct {
	// Errors are those of the rules.
	Errors []string `json:"errors"`
	// Expressions are the parts of the expressions.
	Expressions []Expression `json:"expressions"`
	// Results are the labels of each series that a case results in.
	Results [][]map[string]string `json:"results"`
}

// Expression has the selectors of an expression, or the error that makes it none.
type Expression struct {
	Error     string     `json:"error"`
	Selectors []Selector `json:"selectors"`
}

// Selector is what an expression takes of a metric.
type Selector struct {
	Metric string `json:"metric"`
	// Equal has the labels that must have a value, Labels the others that are named.
	Equal  map[string]string `json:"equal"`
	Labels []string          `json:"labels"`
}

var (
	promQL = parser.NewParser(parser.Options{})
	engine = promql.NewEngine(promql.EngineOpts{Parser: promQL, MaxSamples: 1e6, Timeout: time.Minute})
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	var request Request
	if err := json.NewDecoder(os.Stdin).Decode(&request); err != nil {
		return fmt.Errorf("the request: %w", err)
	}
	answer := Answer{Errors: check(request.Rules), Expressions: []Expression{}, Results: [][]map[string]string{}}
	for _, expression := range request.Expressions {
		answer.Expressions = append(answer.Expressions, takeApart(expression))
	}
	for _, of := range request.Cases {
		result, err := evaluate(of)
		if err != nil {
			return fmt.Errorf("%s: %w", of.Expression, err)
		}
		answer.Results = append(answer.Results, result)
	}
	return json.NewEncoder(os.Stdout).Encode(answer)
}

// check returns the errors that `promtool check rules` would print.
func check(rules string) []string {
	_, errs := rulefmt.Parse([]byte(rules), false, model.UTF8Validation, promQL, slog.Default())
	found := []string{}
	for _, err := range errs {
		found = append(found, err.Error())
	}
	return found
}

func takeApart(expression string) Expression {
	parsed, err := promQL.ParseExpr(expression)
	if err != nil {
		return Expression{Error: err.Error(), Selectors: []Selector{}}
	}
	selectors := []Selector{}
	parser.Inspect(parsed, func(node parser.Node, path []parser.Node) error {
		if selector, is := node.(*parser.VectorSelector); is {
			selectors = append(selectors, describe(selector, path))
		}
		return nil
	})
	return Expression{Selectors: selectors}
}

// describe returns a selector with the labels by which the nodes above it group and match.
func describe(selector *parser.VectorSelector, path []parser.Node) Selector {
	found := Selector{Metric: selector.Name, Equal: map[string]string{}, Labels: []string{}}
	for _, matcher := range selector.LabelMatchers {
		switch {
		case matcher.Name == model.MetricNameLabel:
			found.Metric = matcher.Value
		case matcher.Type == labels.MatchEqual:
			found.Equal[matcher.Name] = matcher.Value
		default:
			found.Labels = append(found.Labels, matcher.Name)
		}
	}
	for _, node := range path {
		switch node := node.(type) {
		case *parser.AggregateExpr:
			if !node.Without {
				found.Labels = append(found.Labels, node.Grouping...)
			}
		case *parser.BinaryExpr:
			if node.VectorMatching != nil && node.VectorMatching.On {
				found.Labels = append(found.Labels, node.VectorMatching.MatchingLabels...)
			}
		}
	}
	return found
}

// evaluate returns the labels of the series that an expression results in.
func evaluate(of Case) ([]map[string]string, error) {
	held, err := read(of.Series)
	if err != nil {
		return nil, err
	}
	at := time.UnixMilli(0).Add(time.Duration(of.Minutes) * time.Minute)
	query, err := engine.NewInstantQuery(context.Background(), held, nil, of.Expression, at)
	if err != nil {
		return nil, err
	}
	defer query.Close()
	vector, err := query.Exec(context.Background()).Vector()
	if err != nil {
		return nil, err
	}
	found := []map[string]string{}
	for _, sample := range vector {
		found = append(found, sample.Metric.Map())
	}
	return found, nil
}
