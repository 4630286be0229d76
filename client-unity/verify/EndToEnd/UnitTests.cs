using System;
using System.Collections;
using System.Collections.Generic;
using System.IO;
using System.Linq;
using System.Reflection;
using NUnit.Framework;
using UnityEngine.Stub;
using UnityEngine.TestTools;

namespace Holocast.Verify
{
    // Runs the package's unit tests, which Unity's test runner would run in the editor, and this program's tests of
    // components that need a headset's packages.
    static class UnitTests
    {
        public static int Run(string filter)
        {
            int failed = 0, passed = 0;
            string folder = Path.GetDirectoryName(typeof(UnitTests).Assembly.Location);
            foreach (Assembly assembly in new[] { "Holocast.Client.Editor.Tests", "Holocast.Client.Tests" }
                .Select(name => Assembly.LoadFrom(Path.Combine(folder, name + ".dll")))
                .Append(typeof(UnitTests).Assembly))
            {
                foreach (Type type in assembly.GetTypes().OrderBy(t => t.Name, StringComparer.Ordinal))
                {
                    foreach (MethodInfo m in type.GetMethods(BindingFlags.Instance | BindingFlags.Public
                        | BindingFlags.DeclaredOnly))
                    {
                        foreach (object[] arguments in Cases(m))
                        {
                            string test = type.Name + "." + m.Name
                                + (arguments.Length > 0 ? "(" + string.Join(", ", arguments.Select(a => a ?? "null"))
                                + ")" : "");
                            if (!test.Contains(filter))
                            {
                                continue;
                            }
                            string problem = RunOne(type, m, arguments);
                            if (problem == null)
                            {
                                passed++;
                                continue;
                            }
                            failed++;
                            Console.Error.WriteLine("FAIL " + test + "\n     " + problem);
                        }
                    }
                }
            }
            Console.WriteLine(passed + " tests of the package passed" + (failed > 0 ? ", " + failed + " failed" : ""));
            return failed == 0 && passed > 0 ? 0 : 1;
        }

        static IEnumerable<object[]> Cases(MethodInfo m)
        {
            foreach (TestCaseAttribute c in m.GetCustomAttributes<TestCaseAttribute>())
            {
                yield return c.Arguments ?? new object[] { null };
            }
            if (m.GetCustomAttribute<TestAttribute>() != null || m.GetCustomAttribute<UnityTestAttribute>() != null)
            {
                yield return new object[0];
            }
        }

        static string RunOne(Type type, MethodInfo m, object[] arguments)
        {
            object fixture = Activator.CreateInstance(type);
            try
            {
                Call<SetUpAttribute>(fixture);
                ParameterInfo[] parameters = m.GetParameters();
                object[] converted = arguments.Select((a, i) =>
                    a is IConvertible && !parameters[i].ParameterType.IsEnum
                        && parameters[i].ParameterType != typeof(object)
                        ? Convert.ChangeType(a, parameters[i].ParameterType) : a).ToArray();
                if (m.Invoke(fixture, converted) is IEnumerator steps)
                {
                    while (steps.MoveNext())
                    {
                        Loop.Tick(1f / 60);
                    }
                }
                Call<TearDownAttribute>(fixture);
                return null;
            }
            catch (Exception e)
            {
                Exception inner = e is TargetInvocationException t ? t.InnerException : e;
                return inner is AssertionException ? inner.Message : inner.ToString();
            }
            finally
            {
                Loop.Clear();
            }
        }

        static void Call<T>(object fixture) where T : Attribute
        {
            foreach (MethodInfo m in fixture.GetType().GetMethods().Where(m => m.GetCustomAttribute<T>() != null))
            {
                m.Invoke(fixture, null);
            }
        }
    }
}
