// Stub of the NUnit and Unity Test Framework members that the package's tests use.
using System;
using System.Collections;

namespace NUnit.Framework
{
    [AttributeUsage(AttributeTargets.Method)]
    public class TestAttribute : Attribute
    {
    }

    [AttributeUsage(AttributeTargets.Method)]
    public class SetUpAttribute : Attribute
    {
    }

    [AttributeUsage(AttributeTargets.Method)]
    public class TearDownAttribute : Attribute
    {
    }

    [AttributeUsage(AttributeTargets.Method, AllowMultiple = true)]
    public class TestCaseAttribute : Attribute
    {
        public TestCaseAttribute(params object[] arguments)
        {
            Arguments = arguments;
        }

        public TestCaseAttribute(object argument)
        {
            Arguments = new[] { argument };
        }

        public TestCaseAttribute(object argument1, object argument2)
        {
            Arguments = new[] { argument1, argument2 };
        }

        public TestCaseAttribute(object argument1, object argument2, object argument3)
        {
            Arguments = new[] { argument1, argument2, argument3 };
        }

        public object[] Arguments { get; }
    }

    public class AssertionException : Exception
    {
        public AssertionException(string message) : base(message)
        {
        }
    }

    public class IgnoreException : Exception
    {
        public IgnoreException(string message) : base(message)
        {
        }
    }

    public abstract class Assert
    {
        public static void AreEqual(object expected, object actual)
        {
            if (!Same(expected, actual))
            {
                throw new AssertionException("expected " + Show(expected) + ", was " + Show(actual));
            }
        }

        public static void AreEqual(object expected, object actual, string message, params object[] args)
        {
            if (!Same(expected, actual))
            {
                throw new AssertionException(message + ": expected " + Show(expected) + ", was " + Show(actual));
            }
        }

        public static void AreEqual(double expected, double actual, double delta)
        {
            if (!(Math.Abs(expected - actual) <= delta))
            {
                throw new AssertionException("expected " + expected + " ± " + delta + ", was " + actual);
            }
        }

        public static void AreEqual(double expected, double actual, double delta, string message, params object[] args)
        {
            if (!(Math.Abs(expected - actual) <= delta))
            {
                throw new AssertionException(message + ": expected " + expected + " ± " + delta + ", was " + actual);
            }
        }

        public static void IsTrue(bool condition)
        {
            IsTrue(condition, "expected true");
        }

        public static void IsTrue(bool condition, string message, params object[] args)
        {
            if (!condition)
            {
                throw new AssertionException(message);
            }
        }

        public static void IsFalse(bool condition)
        {
            IsTrue(!condition, "expected false");
        }

        public static void IsFalse(bool condition, string message, params object[] args)
        {
            IsTrue(!condition, message);
        }

        public static void Ignore(string message)
        {
            throw new IgnoreException(message);
        }

        static bool Same(object a, object b)
        {
            if (a is IConvertible && b is IConvertible && !(a is string) && !(a is Enum) && !(b is string)
                && !(b is Enum) && !(a is bool))
            {
                return Convert.ToDecimal(a) == Convert.ToDecimal(b);
            }
            return Equals(a, b);
        }

        static string Show(object o) => o == null ? "null" : "<" + o + ">";
    }

    public abstract class StringAssert
    {
        public static void Contains(string expected, string actual)
        {
            Assert.IsTrue(actual != null && actual.Contains(expected), "<" + actual + "> does not contain <" + expected
                + ">");
        }
    }
}

namespace UnityEngine.TestTools
{
    [AttributeUsage(AttributeTargets.Method)]
    public class UnityTestAttribute : Attribute
    {
    }
}
